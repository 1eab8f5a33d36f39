//! Memory that the limits of control groups (cgroup v1 and v2) leave to this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Names of the files of a cgroup version.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat` that count page cache, which the kernel reclaims under pressure.
    file_pages: [&'static str; 2],
}

const FIRST: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    file_pages: ["total_inactive_file", "total_active_file"],
};

const SECOND: Names =
    Names { limit: "memory.max", usage: "memory.current", file_pages: ["inactive_file", "active_file"] };

/// Bytes left under the tightest limit of the process's groups and all their ancestors; `None` where
/// no group has a limit. `memberships` is the text of `/proc/self/cgroup`, `root` is the mount point
/// of control groups.
pub(super) fn room(memberships: &str, root: &Path) -> Option<u64> {
    let rooms = memberships.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (mount, names) = match controllers {
            // Where both versions are mounted, version 2 is in the folder `unified`.
            "" if root.join("unified").is_dir() => (root.join("unified"), &SECOND),
            "" => (root.to_owned(), &SECOND),
            some if some.split(',').any(|one| one == "memory") => (root.join("memory"), &FIRST),
            _ => return None,
        };
        lineage(&mount, path).filter_map(|group| room_of(&group, names)).min()
    });
    rooms.min()
}

/// The folders of a group and its ancestors, up to the mount point. In a container the path may be
/// the host's, which does not exist; the mount point is then the container's own group.
fn lineage(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> {
    let path = PathBuf::from(path.trim_start_matches('/'));
    let ancestors: Vec<PathBuf> = path.ancestors().map(|group| mount.join(group)).collect();
    ancestors.into_iter()
}

fn room_of(group: &Path, names: &Names) -> Option<u64> {
    let text = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    // Version 1 writes a huge number where there is no limit.
    let limit = number(names.limit).filter(|&limit| limit < 1 << 62)?;
    let pages: u64 = text("memory.stat").map_or(0, |table| {
        let fields = table.lines().filter_map(|line| line.split_once(' '));
        let wanted = fields.filter(|(name, _)| names.file_pages.contains(name));
        wanted.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum()
    });
    Some(limit.saturating_sub(number(names.usage)?.saturating_sub(pages)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of groups: each a folder and its files.
    fn tree(groups: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (group, files) in groups {
            fs::create_dir_all(root.path().join(group)).expect("a group");
            for (name, text) in *files {
                fs::write(root.path().join(group).join(name), format!("{text}\n")).expect("a file");
            }
        }
        root
    }

    const UNLIMITED: &str = "9223372036854771712";

    #[test]
    fn the_second_version_has_one_tree() {
        let root = tree(&[
            ("", &[("cgroup.controllers", "memory")]),
            ("a", &[("memory.max", "1000"), ("memory.current", "600")]),
            ("a/b", &[("memory.max", "max"), ("memory.current", "500")]),
            ("a/b/c", &[("memory.max", "900"), ("memory.current", "450")]),
            ("tight", &[("memory.max", "10"), ("memory.current", "30")]),
        ]);
        let room = |path: &str| room(&format!("0::{path}\n"), root.path());
        assert_eq!(room("/a/b/c"), Some(400), "a group around it is the tightest");
        assert_eq!(room("/a/b"), Some(400));
        assert_eq!(room("/tight"), Some(0), "over its limit");
        assert_eq!((room("/"), room("/elsewhere")), (None, None));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_mount() {
        let root = tree(&[("", &[("memory.max", "1000"), ("memory.current", "1")])]);
        assert_eq!(room("0::/host/path/of/it\n", root.path()), Some(999));
        let root = tree(&[("memory", &[("memory.limit_in_bytes", "1000"), ("memory.usage_in_bytes", "2")])]);
        assert_eq!(room("4:cpu,memory:/docker/0123\n", root.path()), Some(998));
    }

    #[test]
    fn the_first_version_has_a_tree_for_memory() {
        let limited = |limit, usage| [("memory.limit_in_bytes", limit), ("memory.usage_in_bytes", usage)];
        let root = tree(&[
            ("memory", &limited(UNLIMITED, "5000")),
            ("memory/outer", &limited("3000", "2900")),
            ("memory/outer/inner", &limited("2000", "100")),
            ("memory/free", &limited(UNLIMITED, "100")),
            ("unified", &[]),
            ("cpu/outer", &limited("1", "0")),
        ]);
        let room =
            |path: &str| room(&format!("9:pids:/\n4:memory:{path}\n1:cpu:/outer\n0::/\n"), root.path());
        assert_eq!(room("/outer/inner"), Some(100));
        assert_eq!(room("/outer"), Some(100));
        assert_eq!((room("/free"), room("/")), (None, None));
    }

    #[test]
    fn pages_of_files_can_leave() {
        let stat = "anon 50\nfile 900\ninactive_file 300\nactive_file 200\nslab 7";
        let root =
            tree(&[("g", &[("memory.max", "1000"), ("memory.current", "800"), ("memory.stat", stat)])]);
        assert_eq!(room("0::/g\n", root.path()), Some(700));
    }
}
