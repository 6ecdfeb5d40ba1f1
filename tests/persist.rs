//! The file of assignments: what it survives, and what it refuses.

#![cfg(feature = "persist")]

#[path = "common/child.rs"]
mod child;
#[path = "common/directory.rs"]
mod directory;
#[path = "common/file_size.rs"]
mod file_size;

use directory::Directory;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use tollgate::keep::{AssignmentFile, PersistError};
use tollgate::{Assignment, Assignments, Limit};

/// A path for a file in a directory for this test.
fn place() -> (Directory, PathBuf) {
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    (directory, path)
}

fn assignment(plan: &str) -> Assignment {
    let mut assignment = Assignment::default();
    assignment.set_plan(Some(plan.to_owned()));
    assignment.set_override("ws/heavy", Limit::per_minute(100).burst(7));
    assignment
}

fn agents(plan: &str) -> Assignments {
    vec![(b"agent-7".to_vec(), assignment(plan)), (b"\xff\0".to_vec(), assignment(plan))]
}

fn save(file: &mut AssignmentFile, agents: &Assignments) -> Result<(), PersistError> {
    file.save(agents.iter().map(|(id, assignment)| (id.as_slice(), assignment)))
}

fn load(path: &Path) -> Assignments {
    AssignmentFile::open(path).expect("a valid file").1
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A message, with the directory's path as `DIR`.
fn message(error: impl ToString, directory: &Directory) -> String {
    error.to_string().replace(directory.path().to_str().expect("a path of UTF-8"), "DIR")
}

#[test]
fn what_is_saved_survives_a_restart() {
    let (directory, path) = place();
    let (mut file, before) = AssignmentFile::open(&path).unwrap();
    assert_eq!(before, []);
    assert!(!path.exists(), "opening writes nothing");
    save(&mut file, &agents("pro")).unwrap();
    save(&mut file, &agents("free")).unwrap();
    assert_eq!(file.path(), path);
    drop(file);
    assert_eq!(load(&path), agents("free"));
    assert_eq!(names(directory.path()), ["assignments.json", "assignments.json.lock"]);
}

#[test]
fn a_missing_directory_is_an_error() {
    let directory = Directory::new();
    let error = AssignmentFile::open(directory.path().join("no/assignments.json")).unwrap_err();
    assert_eq!(
        message(&error, &directory),
        "cannot find DIR/no/assignments.json: No such file or directory (os error 2); create the directory first"
    );
    assert!(AssignmentFile::open("").unwrap_err().to_string().contains("the path has no file name"));
}

#[test]
fn a_second_writer_is_refused_until_the_first_is_gone() {
    if let Some(path) = child::argument() {
        return match AssignmentFile::open(path) {
            Err(error @ PersistError::InUse { .. }) => eprint!("[{error}]"),
            other => eprint!("[{other:?}]"),
        };
    }
    let (directory, path) = place();
    let (file, _) = AssignmentFile::open(&path).unwrap();
    let refusal = "DIR/assignments.json.lock is locked by another process, or twice by this one; \
                   end the other, or use another file";
    assert_eq!(message(AssignmentFile::open(&path).unwrap_err(), &directory), refusal);
    let other = child::command("a_second_writer_is_refused_until_the_first_is_gone", &path).output().unwrap();
    let output = message(String::from_utf8(other.stderr).unwrap(), &directory);
    assert!(output.contains(&format!("[{refusal}]")), "{output}");
    drop(file);
    assert_eq!(load(&path), []);
}

#[test]
fn a_broken_file_is_an_error_with_a_location_and_is_left_as_it_is() {
    let (directory, path) = place();
    let broken =
        "{\"version\": 1, \"agents\": [\n  {\"agent\": \"agent-7\", \"overrides\": {\"ws/heavy\": \"lots\"}}\n]}\n";
    for text in [broken, &broken[..30], ""] {
        fs::write(&path, text).unwrap();
        let error = AssignmentFile::open(&path).unwrap_err();
        assert!(matches!(error, PersistError::Content { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, broken).unwrap();
    assert_eq!(
        message(AssignmentFile::open(&path).unwrap_err(), &directory),
        "DIR/assignments.json:2:50: agent \"agent-7\": override \"ws/heavy\": \"lots\" is not a limit; \
         write \"10/second burst 20\", \"60/min\", \"5 per 5 minutes\" or \"deny\", \
         or of another kind \"window 100/min\", \"exact 5/5min\", \"budget 10000/day\", \"held 3\" or \"dynamic\"; \
         correct the file, or move it away to start without it"
    );
}

#[test]
fn an_edit_by_hand_is_not_overwritten() {
    let (directory, path) = place();
    let (mut file, _) = AssignmentFile::open(&path).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    let text = fs::read_to_string(&path).unwrap();

    // Broken while the limiter runs: neither saving nor reloading touches it.
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let changed = "DIR/assignments.json was changed by another writer after it was read, and is left as it is; \
                   reload it, then save again";
    assert_eq!(message(save(&mut file, &agents("free")).unwrap_err(), &directory), changed);
    assert!(matches!(file.reload(), Err(PersistError::Content { .. })));
    assert_eq!(message(save(&mut file, &agents("free")).unwrap_err(), &directory), changed);
    assert_eq!(fs::read_to_string(&path).unwrap(), text[..text.len() / 2]);

    // Repaired, and replaced as editors do.
    fs::write(directory.path().join("edited"), text.replace("pro", "gold")).unwrap();
    fs::rename(directory.path().join("edited"), &path).unwrap();
    assert_eq!(file.reload().unwrap(), agents("gold"));
    save(&mut file, &agents("free")).unwrap();

    // A deleted file contains nothing that could be lost.
    fs::remove_file(&path).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.reload().unwrap(), []);
    drop(file);
    assert_eq!(load(&path), []);
}

#[test]
fn permissions_and_owner_are_kept() {
    let (_directory, path) = place();
    let (mut file, _) = AssignmentFile::open(&path).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    // Only root may give a file away; any other user becomes its owner.
    let _ = chown(&path, Some(4_242), Some(4_242));
    let before = fs::metadata(&path).unwrap();
    save(&mut file, &agents("free")).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_ne!(before.ino(), after.ino(), "replaced, not rewritten");
    assert_eq!(after.mode() & 0o7777, 0o640);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
}

/// They were 0644, so that every user of the machine could read the ids of agents.
#[test]
fn a_new_file_is_readable_by_its_owner_only() {
    let (directory, path) = place();
    let (mut file, _) = AssignmentFile::open(&path).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    let mode = |name: &str| fs::metadata(directory.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!(["assignments.json", "assignments.json.lock"].map(mode), [0o600, 0o600]);
}

#[test]
fn a_symbolic_link_stays_and_its_target_is_replaced() {
    let directory = Directory::new();
    let [etc, var] = ["etc", "var"].map(|name| directory.path().join(name));
    fs::create_dir(&etc).unwrap();
    fs::create_dir(&var).unwrap();
    let link = etc.join("link.json");
    symlink("../etc/second", &link).unwrap();
    symlink("../var/assignments.json", etc.join("second")).unwrap();

    // First the target does not exist; then it does.
    for plan in ["pro", "free"] {
        let (mut file, _) = AssignmentFile::open(&link).unwrap();
        save(&mut file, &agents(plan)).unwrap();
        assert!(matches!(AssignmentFile::open(file.path()), Err(PersistError::InUse { .. })));
        drop(file);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(load(&var.join("assignments.json")), agents(plan));
    }
    assert_eq!(names(&etc), ["link.json", "second"]);
    assert_eq!(names(&var), ["assignments.json", "assignments.json.lock"]);

    let circle = etc.join("circle");
    symlink("circle", &circle).unwrap();
    assert!(AssignmentFile::open(&circle).unwrap_err().to_string().contains("too many symbolic links"));
}

#[test]
fn what_a_killed_writer_left_behind_is_removed() {
    let (directory, path) = place();
    let temporary = directory.path().join("assignments.json.tmp");
    fs::write(&temporary, "{\"version\": 1, \"ag").unwrap();
    let (mut file, _) = AssignmentFile::open(&path).unwrap();
    assert!(!temporary.exists());

    // A link in its place is not followed.
    let victim = directory.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, &temporary).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    drop(file);
    assert_eq!(load(&path), agents("pro"));
    assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
}

#[test]
fn a_path_that_is_not_a_file_is_neither_read_nor_replaced() {
    let (directory, path) = place();
    fs::create_dir(&path).unwrap();
    assert_eq!(
        message(AssignmentFile::open(&path).unwrap_err(), &directory),
        "DIR/assignments.json is not a regular file; give the path of one, or of a file that does not exist yet"
    );
    fs::remove_dir(&path).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a NUL-terminated string that lives as long as the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(matches!(AssignmentFile::open(&path), Err(PersistError::NotAFile { .. })), "nor waited for");
}

#[test]
fn what_could_not_be_read_back_changes_nothing() {
    let (_directory, path) = place();
    let (mut file, _) = AssignmentFile::open(&path).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    let error = save(&mut file, &vec![(vec![b'x'; 257], assignment("pro"))]).unwrap_err();
    assert!(error.to_string().ends_with("\": an id of 257 bytes; allowed: 1 to 256; nothing was written"), "{error}");
    assert_eq!(file.reload().unwrap(), agents("pro"));
}

/// Root may write anywhere, so a thread with the file-system identity of `nobody` makes the calls.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_directory_is_an_error_and_the_file_is_as_it_was() {
    let as_nobody = |call: &(dyn Fn() -> PersistError + Sync)| {
        let calling = || {
            // SAFETY: changes this thread's file-system identity; the thread ends after the call.
            unsafe { libc::setfsuid(65_534) };
            call()
        };
        std::thread::scope(|scope| scope.spawn(calling).join().unwrap())
    };
    let (directory, path) = place();
    let (mut file, _) = AssignmentFile::open(&path).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    let lock = directory.path().join("assignments.json.lock");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();

    let file = std::sync::Mutex::new(file);
    let error = as_nobody(&|| save(&mut file.lock().unwrap(), &agents("free")).unwrap_err());
    assert_eq!(
        message(&error, &directory),
        "cannot write DIR/assignments.json.tmp: Permission denied (os error 13); \
         let this process read and write there, or use another directory"
    );
    assert_eq!(file.lock().unwrap().reload().unwrap(), agents("pro"));
    drop(file);

    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(&lock).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();
    let error = as_nobody(&|| AssignmentFile::open(&path).unwrap_err());
    assert_eq!(
        message(&error, &directory),
        "cannot open DIR/assignments.json.lock: Permission denied (os error 13); \
         let this process read and write there, or use another directory"
    );
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(load(&path), agents("pro"));
}

/// A limit on the size of files stands in for a full disk: the write stops
/// halfway with an error. It applies to a process, hence the child.
#[test]
fn a_full_disk_is_an_error_and_the_file_is_as_it_was() {
    let Some(path) = child::argument() else {
        let (directory, path) = place();
        let child = child::command("a_full_disk_is_an_error_and_the_file_is_as_it_was", &path).output().unwrap();
        let output = message(String::from_utf8(child.stderr).unwrap(), &directory);
        assert!(child.status.success(), "{output}");
        let expected = "[cannot write DIR/assignments.json.tmp: File too large (os error 27); \
                        make room there and try again; the file is as it was]";
        assert!(output.contains(expected), "{output}");
        assert_eq!(load(&path), agents("gold"), "the last one was saved when there was room again");
        return;
    };
    let names_here = || names(path.parent().unwrap());
    let (mut file, _) = AssignmentFile::open(&path).unwrap();
    save(&mut file, &agents("pro")).unwrap();
    let many: Assignments = (0..1_000).map(|i: u32| (i.to_string().into_bytes(), assignment("pro"))).collect();

    file_size::limit(10_000);
    let error = save(&mut file, &many).unwrap_err();
    assert!(matches!(&error, PersistError::System { source, .. } if source.kind() == io::ErrorKind::FileTooLarge));
    eprint!("[{error}]");
    assert_eq!(names_here(), ["assignments.json", "assignments.json.lock"]);
    assert_eq!(file.reload().unwrap(), agents("pro"));
    file_size::limit(libc::RLIM_INFINITY);
    save(&mut file, &agents("gold")).unwrap();
}
