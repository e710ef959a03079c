//! `pandastack snapshot`.

use std::process::ExitCode;

use anyhow::Result;
use pandastack_api_types::{
    params::CreateSnapshot,
    views::{GcReport, Snapshot},
};

use crate::{
    args::{ServerArgs, SnapshotCommand},
    commands,
    output::{Output, fields, pairs, plain, size, table},
};

pub(crate) async fn run(command: SnapshotCommand, output: Output) -> Result<ExitCode> {
    match command {
        SnapshotCommand::Create { id, name, metadata, server } => {
            let params = CreateSnapshot { name, metadata: commands::metadata(metadata) };
            let snapshot = commands::client(&server)?.create_snapshot(&id, &params).await?;
            output.answer(&snapshot, |snapshot| snapshot.id.clone())?;
        }
        SnapshotCommand::Ls { sandbox, server } => {
            let snapshots = commands::client(&server)?.list_snapshots(sandbox.as_deref()).await?;
            output.answer(&snapshots, |snapshots| snapshot_table(snapshots))?;
        }
        SnapshotCommand::Get { id, server } => {
            let snapshot = commands::client(&server)?.get_snapshot(&id).await?;
            output.answer(&snapshot, snapshot_fields)?;
        }
        SnapshotCommand::Rm { ids, server } => return remove(ids, &server, output).await,
        SnapshotCommand::Gc { dry_run, server } => {
            let report = commands::client(&server)?.collect_garbage(dry_run).await?;
            output.answer(&report, report_text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(ids: Vec<String>, server: &ServerArgs, output: Output) -> Result<ExitCode> {
    let client = commands::client(server)?;
    let mut removed = Vec::new();
    let mut failed = false;
    for id in ids {
        match client.delete_snapshot(&id).await {
            Ok(()) => removed.push(id),
            Err(error) => {
                failed = true;
                output.note(&format!("error: {id}: {error}"));
            }
        }
    }
    output.answer(&serde_json::json!({ "removed": removed }), |_| removed.join("\n"))?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn snapshot_table(snapshots: &[Snapshot]) -> String {
    let rows = snapshots.iter().map(|snapshot| {
        vec![
            snapshot.id.clone(),
            snapshot.name.as_deref().map_or_else(|| "-".to_owned(), plain),
            snapshot.kind.clone(),
            snapshot.sandbox_id.clone(),
            snapshot.template.clone(),
            size(snapshot.size_bytes),
            snapshot.used_by.len().to_string(),
            snapshot.created_at.clone(),
        ]
    });
    table(&["ID", "NAME", "KIND", "SANDBOX", "TEMPLATE", "SIZE", "USERS", "CREATED"], rows)
}

fn snapshot_fields(snapshot: &Snapshot) -> String {
    let mut rows = vec![("id", snapshot.id.clone())];
    rows.extend(snapshot.name.as_deref().map(|name| ("name", plain(name))));
    rows.extend([
        ("kind", snapshot.kind.clone()),
        ("sandbox", snapshot.sandbox_id.clone()),
        ("template", snapshot.template.clone()),
        ("cpu", snapshot.cpu.to_string()),
        ("memory", format!("{} MiB", snapshot.memory_mb)),
        ("size", size(snapshot.size_bytes)),
        ("paused", format!("{} ms", snapshot.paused_ms)),
        ("created", snapshot.created_at.clone()),
        ("expires", snapshot.expires_at.clone().unwrap_or_else(|| "never".to_owned())),
    ]);
    rows.extend((!snapshot.used_by.is_empty()).then(|| ("used by", snapshot.used_by.join(" "))));
    rows.extend((!snapshot.metadata.is_empty()).then(|| ("metadata", pairs(&snapshot.metadata))));
    fields(&rows)
}

fn report_text(report: &GcReport) -> String {
    let (done, total) = (if report.dry_run { "would remove" } else { "removed" }, size(report.bytes));
    if report.removed.is_empty() {
        return "nothing to remove".to_owned();
    }
    let rows = report.removed.iter().map(|one| vec![plain(&one.id), size(one.bytes), plain(&one.reason)]);
    format!("{}\n{done} {}, {total}", table(&["ID", "SIZE", "REASON"], rows), report.removed.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pandastack_api_types::views::Garbage;

    use super::*;

    #[test]
    fn a_snapshot_is_shown_with_its_size() {
        let snapshot = Snapshot {
            id: "0190".to_owned(),
            workspace: "default".to_owned(),
            sandbox_id: "0191".to_owned(),
            kind: "snapshot".to_owned(),
            name: Some("before\u{7}".to_owned()),
            metadata: BTreeMap::new(),
            template: "base".to_owned(),
            cpu: 2,
            memory_mb: 2048,
            size_bytes: 185_585_664,
            paused_ms: 27,
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            used_by: vec!["0192".to_owned()],
            expires_at: None,
            mem_path: String::new(),
            state_path: String::new(),
        };
        let text = snapshot_table(std::slice::from_ref(&snapshot));
        let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[..8], ["0190", "before\u{fffd}", "snapshot", "0191", "base", "185", "MB", "1"]);
        let text = snapshot_fields(&snapshot);
        for line in ["name      before\u{fffd}", "paused    27 ms", "expires   never", "used by   0192"] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }

    #[test]
    fn garbage_is_added_up() {
        let garbage = Garbage { id: "0190.new".to_owned(), bytes: 2_500_000, reason: "never finished".to_owned() };
        let report = GcReport { dry_run: true, removed: vec![garbage], bytes: 2_500_000 };
        assert!(report_text(&report).ends_with("\nwould remove 1, 2.5 MB"));
        let report = GcReport { dry_run: false, removed: vec![], bytes: 0 };
        assert_eq!(report_text(&report), "nothing to remove");
    }
}
