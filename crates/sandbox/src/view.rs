//! Sandboxes as the API shows them.

use pandastack_api_types::views;
use pandastack_store::SandboxRecord;

use crate::{
    contexts,
    driver::{State, now_ms},
    manager::Entry,
};

pub(crate) async fn view(entry: &Entry) -> views::Sandbox {
    let State { life, image, boot: (boot_mode, boot_ms), .. } = entry.handle.state();
    let usage = entry.handle.usage().await;
    views::Sandbox {
        status: life.status,
        persistent: life.clocks.persistent,
        ttl_seconds: life.clocks.ttl_ms.unwrap_or(0) / 1000,
        stop_reason: life.stop_reason.map(|reason| reason.as_str().to_owned()),
        boot_mode,
        boot_ms,
        memory_bytes: usage.map(|usage| usage.memory_bytes),
        disk_bytes: usage.map(|usage| usage.disk_bytes).or_else(|| image.map(|image| image.bytes)),
        ..recorded_view(&entry.record)
    }
}

/// A sandbox as the store knows it.
pub(crate) fn recorded_view(record: &SandboxRecord) -> views::Sandbox {
    views::Sandbox {
        id: record.id.to_string(),
        template: record.template.clone(),
        status: record.status,
        cpu: record.cpu,
        memory_mb: record.memory_mb,
        metadata: public_metadata(record),
        isolation: record.isolation.clone(),
        boot_mode: record.boot_mode.clone(),
        boot_ms: record.boot_ms,
        created_at: contexts::timestamp(record.created_at_ms),
        persistent: record.persistent,
        ttl_seconds: record.ttl_seconds,
        from_snapshot: record.from_snapshot.clone(),
        stop_reason: record.stop_reason.clone(),
        memory_bytes: None,
        disk_bytes: None,
        guest_ip: "127.0.0.1".to_owned(),
    }
}

/// Keys that start with `secret.` are stored and never shown.
fn public_metadata(record: &SandboxRecord) -> std::collections::BTreeMap<String, String> {
    let public = record.metadata.iter().filter(|(key, _)| !key.starts_with("secret."));
    public.map(|(key, value)| (key.clone(), value.clone())).collect()
}

pub(crate) fn lifecycle_view(entry: &Entry) -> views::Lifecycle {
    let life = entry.handle.lifecycle();
    let active_requests = entry.handle.active();
    let idle_ms = now_ms().saturating_sub(life.clocks.last_active_ms);
    views::Lifecycle {
        ttl_seconds: life.clocks.ttl_ms.unwrap_or(0) / 1000,
        persistent: life.clocks.persistent,
        idle_seconds: if active_requests > 0 { 0 } else { u64::try_from(idle_ms).unwrap_or(0) / 1000 },
        active_requests,
        status: life.status,
        last_active_at: contexts::timestamp(life.clocks.last_active_ms),
        expires_at: life.expires_at_ms().filter(|_| active_requests == 0).map(contexts::timestamp),
        hibernates_at: life.hibernates_at_ms().filter(|_| active_requests == 0).map(contexts::timestamp),
        stop_reason: life.stop_reason.map(|reason| reason.as_str().to_owned()),
    }
}
