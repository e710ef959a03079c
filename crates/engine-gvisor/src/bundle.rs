//! The OCI bundle of a machine.

use std::{io, path::Path};

use fs_err as fs;
use pandastack_engine::{VmSpec, vm::RUNTIME_MOUNT};
use serde_json::{Value, json};

/// Docker's default set, which lets package managers work as root inside, and what the first process needs to give a restored copy its own
/// names: no other has it, see `first.rs` of the agent.
const CAPABILITIES: [&str; 15] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
    "CAP_SYS_CHROOT",
];
const MASKED: [&str; 8] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// Most open files of a process inside.
const OPEN_FILES: u64 = 65_536;

/// Makes the `config.json` of a machine. A machine restored from a snapshot must get the same one but for its names.
pub(crate) fn config(spec: &VmSpec, cgroup: &str) -> io::Result<Value> {
    let mut args = vec![format!("{RUNTIME_MOUNT}/agent"), "--link".to_owned(), "stdio".to_owned()];
    args.extend(spec.agent_args.iter().cloned());
    let env: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let rlimit = |kind: &str, limit: u64| json!({ "type": kind, "soft": limit, "hard": limit });
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({ "type": kind }));
    let sets = ["bounding", "effective", "permitted"].map(|set| (set.to_owned(), json!(CAPABILITIES)));
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": args,
            "env": env,
            "cwd": "/",
            "capabilities": Value::Object(sets.into_iter().collect()),
            "rlimits": [
                rlimit("RLIMIT_NOFILE", OPEN_FILES),
                rlimit("RLIMIT_NPROC", u64::from(spec.resources.pids)),
                rlimit("RLIMIT_CORE", 0),
            ],
            "noNewPrivileges": false,
        },
        "root": { "path": spec.rootfs, "readonly": false },
        "hostname": spec.hostname,
        "mounts": mounts(spec)?,
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": namespaces,
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        },
    }))
}

fn mounts(spec: &VmSpec) -> io::Result<Vec<Value>> {
    let resources = spec.resources;
    let half_of_memory = resources.memory_mib.div_ceil(2);
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &[]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        // Linux's own default size.
        mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", &megabytes(half_of_memory)]),
        json!({
            "destination": RUNTIME_MOUNT,
            "type": "bind",
            "source": spec.runtime_dir,
            "options": ["bind", "ro", "nosuid", "nodev"],
        }),
    ];
    // `runsc` mounts a tmpfs there by itself if it is empty, without a size.
    if is_empty(&spec.rootfs.join("tmp"))? {
        let size = megabytes(half_of_memory.min(resources.disk_mib));
        mounts.push(mount("/tmp", "tmpfs", "tmpfs", &["nosuid", "nodev", "mode=1777", &size]));
    }
    Ok(mounts)
}

fn megabytes(size: u64) -> String {
    format!("size={}k", size * 1024)
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({ "destination": destination, "type": kind, "source": source, "options": options })
}

fn is_empty(dir: &Path) -> io::Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use pandastack_engine::{Resources, VmId};

    use super::*;

    #[test]
    fn what_matters_is_in_the_configuration() {
        let rootfs = tempfile::tempdir().unwrap();
        let spec = VmSpec {
            id: VmId::random(),
            rootfs: rootfs.path().to_owned(),
            runtime_dir: "/srv/runtime".into(),
            agent_args: vec!["--workspace".into(), "/workspace".into()],
            env: vec![("PATH".into(), "/bin".into())],
            hostname: "box".into(),
            resources: Resources { vcpus: 1, memory_mib: 512, disk_mib: 100, pids: 64 },
        };
        let config = config(&spec, "/p/x").unwrap();
        assert_eq!(
            config["process"]["args"],
            json!(["/opt/pandastack/agent", "--link", "stdio", "--workspace", "/workspace"])
        );
        assert_eq!(config["process"]["env"], json!(["PATH=/bin"]));
        assert_eq!(config["linux"]["cgroupsPath"], "/p/x");
        let kinds: Vec<_> = config["linux"]["namespaces"].as_array().unwrap().iter().map(|n| &n["type"]).collect();
        assert!(kinds.contains(&&json!("network")));
        let capabilities = config["process"]["capabilities"]["bounding"].as_array().unwrap();
        // The agent drops it for everything that it starts.
        assert!(capabilities.contains(&json!("CAP_SYS_ADMIN")));
        for name in ["CAP_SYS_RESOURCE", "CAP_SYS_PTRACE", "CAP_SYS_MODULE", "CAP_NET_ADMIN"] {
            assert!(!capabilities.contains(&json!(name)), "{name}");
        }
        let destinations = |config: &Value| {
            let mounts = config["mounts"].as_array().unwrap().clone();
            mounts.iter().map(|m| m["destination"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert!(destinations(&config).contains(&"/tmp".to_owned()));
        std::fs::create_dir(rootfs.path().join("tmp")).unwrap();
        std::fs::write(rootfs.path().join("tmp/kept"), "").unwrap();
        assert!(!destinations(&super::config(&spec, "/p/x").unwrap()).contains(&"/tmp".to_owned()));
    }
}
