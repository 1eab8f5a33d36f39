//! Models split into several files.

use std::fs;
use std::path::PathBuf;

use minfer_formats::gguf::{File, GgufError, Writer};
use minfer_tensor::DType;

/// What one part of a model of three states, and its tensors.
struct Part {
    number: u16,
    count: u16,
    all_tensors: i32,
    tensors: &'static [&'static str],
    /// The model's own metadata, in the first part.
    name: Option<&'static str>,
}

const PARTS: [Part; 3] = [
    Part { number: 0, count: 3, all_tensors: 4, tensors: &["a", "b"], name: Some("tiny") },
    Part { number: 1, count: 3, all_tensors: 4, tensors: &[], name: None },
    Part { number: 2, count: 3, all_tensors: 4, tensors: &["c", "d"], name: None },
];

fn bytes(part: &Part) -> Vec<u8> {
    let mut writer = Writer::new();
    if let Some(name) = part.name {
        writer.put("general.name", name).unwrap();
    }
    writer.put("split.no", &part.number).unwrap();
    writer.put("split.count", &part.count).unwrap();
    writer.put("split.tensors.count", &part.all_tensors).unwrap();
    for name in part.tensors {
        writer.announce(name, DType::F32, &[2]).unwrap();
    }
    let mut sink = writer.start(Vec::new()).unwrap();
    for name in part.tensors {
        sink.tensor(name, &[name.as_bytes()[0]; 8]).unwrap();
    }
    sink.finish().unwrap()
}

/// Writes the three parts, changed by `change`, into a folder of the case's own.
fn written(case: &str, change: impl Fn(&mut [Part; 3])) -> impl Fn(usize) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("split").join(case);
    fs::create_dir_all(&folder).unwrap();
    let path = move |number: usize| folder.join(format!("tiny-{number:05}-of-00003.gguf"));
    let mut parts = PARTS;
    change(&mut parts);
    for (index, part) in parts.iter().enumerate() {
        fs::write(path(index + 1), bytes(part)).unwrap();
    }
    path
}

fn refusal(result: Result<File, GgufError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn any_part_opens_the_model() {
    let path = written("good", |_| ());
    for named in 1..=3 {
        let file = File::open(path(named)).unwrap();
        assert_eq!(file.path(), Some(path(named).as_path()));
        assert_eq!(file.metadata().string("general.name").unwrap(), Some("tiny"));
        let names: Vec<_> = file.tensors().iter().map(|tensor| (tensor.name(), tensor.part())).collect();
        assert_eq!(names, [("a", 0), ("b", 0), ("c", 2), ("d", 2)]);
        for tensor in file.tensors() {
            assert_eq!(file.read_all(tensor).unwrap(), [tensor.name().as_bytes()[0]; 8]);
        }
        let sizes: Vec<_> =
            file.parts().iter().map(|part| (part.path().unwrap().to_owned(), part.n_tensors())).collect();
        assert_eq!(sizes, [(path(1), 2), (path(2), 0), (path(3), 2)]);
        let total: u64 = (1..=3).map(|number| fs::metadata(path(number)).unwrap().len()).sum();
        assert_eq!(file.total_bytes(), total);
    }
}

#[test]
fn a_missing_part_is_named() {
    let path = written("missing", |_| ());
    fs::remove_file(path(2)).unwrap();
    for named in [1, 3] {
        let expected = format!("{}: part 2 of 3 of the model is missing", path(2).display());
        assert_eq!(refusal(File::open(path(named))), expected);
    }
}

#[test]
fn a_renamed_part_says_how_it_must_be_named() {
    let path = written("renamed", |_| ());
    let renamed = path(1).with_file_name("other.gguf");
    fs::copy(path(1), &renamed).unwrap();
    let message = refusal(File::open(&renamed));
    assert!(
        message.contains("other.gguf: is part 1 of 3") && message.contains("-00001-of-00003.gguf"),
        "{message}"
    );
    let alone = refusal(File::parse(fs::read(&renamed).unwrap()));
    assert_eq!(alone, "is part 1 of 3 of a split model, which must be opened by its path");
    fs::copy(path(2), path(3)).unwrap();
    let twice = refusal(File::open(path(1)));
    assert_eq!(twice, format!("{}: is named as part 3 and says that it is part 2 of 3", path(3).display()));
}

#[test]
fn parts_that_disagree_are_refused() {
    type Change = fn(&mut [Part; 3]);
    let cases: [(&str, Change, usize, &str); 6] = [
        ("count", |parts| parts[1].count = 4, 2, "is named as part 2 and says that it is part 2 of 4"),
        ("whole", |parts| parts[1].count = 1, 2, "is named as part 2 and says that it is part of nothing"),
        (
            "tensors",
            |parts| parts[2].all_tensors = 5,
            3,
            "key \"split.tensors.count\": differs from that of tiny-00001",
        ),
        (
            "model",
            |parts| parts[2].name = Some("huge"),
            3,
            "key \"general.name\": differs from that of tiny-00001",
        ),
        ("twice", |parts| parts[2].tensors = &["c", "a"], 3, "tensor \"a\": the tensor name occurs twice"),
        (
            "fewer",
            |parts| parts[2].tensors = &["c"],
            1,
            "the stated number of tensors in all parts is 4, but the parts have 3",
        ),
    ];
    for (case, change, at, words) in cases {
        let path = written(case, change);
        let message = refusal(File::open(path(1)));
        assert!(message.starts_with(&path(at).display().to_string()), "{case}: {message}");
        assert!(message.contains(words), "{case}: {message}");
    }
}

#[test]
fn a_damaged_part_is_named() {
    let path = written("damaged", |_| ());
    let whole = fs::read(path(3)).unwrap();
    fs::write(path(3), &whole[..whole.len() - 40]).unwrap();
    let message = refusal(File::open(path(1)));
    assert!(message.starts_with(&path(3).display().to_string()), "{message}");
}

#[test]
fn one_part_of_one_is_a_whole_file() {
    let whole = Part { number: 0, count: 1, all_tensors: 2, tensors: &["a", "b"], name: None };
    let file = File::parse(bytes(&whole)).unwrap();
    assert_eq!((file.parts().len(), file.tensors().len()), (1, 2));
}
