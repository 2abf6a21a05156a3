"""Folders signed with OpenSSF's model signing and a plain key."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from model_signing.hashing import Config as Hashing
from model_signing.signing import Config as Signing

from edge_rag.errors import ConfigurationError, ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.add import add
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.signature import SIGNATURE_FILE, acceptable_keys
from edge_rag.model_store.source import AddRequest, HubModel, LocalFolder, NoProgress, Source
from edge_rag.runtime.model_folder.folder import verify_model_folder
from tests.synthetic.tiny_model import FIXTURES


class Pair:
    """A key and its public half, as files."""

    def __init__(self, folder: Path, name: str, curve: ec.EllipticCurve) -> None:
        key = ec.generate_private_key(curve)
        self.private, self.public = folder / f"{name}.key.pem", folder / f"{name}.pem"
        self.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    def sign(self, folder: Path) -> None:
        signature = folder / SIGNATURE_FILE
        hashing = Hashing().set_ignored_paths(paths=[signature])
        Signing().use_elliptic_key_signer(private_key=self.private).set_hashing_config(hashing).sign(folder, signature)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    folder = tmp_path_factory.mktemp("keys")
    return Pair(folder, "ours", ec.SECP256R1()), Pair(folder, "theirs", ec.SECP384R1())


@pytest.fixture
def folder(tmp_path: Path, keys: tuple[Pair, Pair]) -> Path:
    folder = tmp_path / "signed"
    shutil.copytree(FIXTURES / "tiny-cross-encoder", folder)
    keys[0].sign(folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "left-by-a-download").write_text("x")
    return folder


def take(store: StoreDirectory, source: Source, *wanted: Path) -> None:
    add(store, AddRequest(source, "added", None, None, keys=wanted), NoProgress())


def test_a_folder_that_the_key_signed_is_added_without_its_signature(
    store: StoreDirectory, folder: Path, keys: tuple[Pair, Pair]
) -> None:
    take(store, LocalFolder(folder), keys[0].public)
    assert SIGNATURE_FILE not in verify_model_folder(store.folder("added")).files


def test_one_good_key_of_several_is_enough(store: StoreDirectory, folder: Path, keys: tuple[Pair, Pair]) -> None:
    take(store, LocalFolder(folder), keys[1].public, keys[0].public)
    assert store.names() == ("added",)


def test_where_no_signature_is_wanted_one_does_no_harm(store: StoreDirectory, folder: Path) -> None:
    take(store, LocalFolder(folder))
    assert store.names() == ("added",)


def pointed_elsewhere(folder: Path) -> None:
    (folder / SIGNATURE_FILE).rename(folder.parent / "elsewhere.sig")
    (folder / SIGNATURE_FILE).symlink_to(folder.parent / "elsewhere.sig")


def another_payload(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{} ")
    bundle = json.loads((folder / SIGNATURE_FILE).read_bytes())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    for resource in statement["predicate"]["resources"]:
        resource["digest"] = "0" * 64
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    (folder / SIGNATURE_FILE).write_text(json.dumps(bundle))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "tokenizer.json").write_text("{} "), r"Hash mismatch for 'tokenizer\.json'\"\]$"),
        (lambda folder: (folder / "extra.json").write_text("{}"), "extra.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda folder: (folder / SIGNATURE_FILE).unlink(), "no model.sig"),
        (pointed_elsewhere, "link"),
        (lambda folder: (folder / SIGNATURE_FILE).write_bytes(b"\x00garbage"), "is invalid"),
        (another_payload, "is invalid"),
    ],
)
def test_a_folder_that_is_not_what_was_signed_is_refused_with_the_reason(
    store: StoreDirectory, folder: Path, keys: tuple[Pair, Pair], spoil: Callable[[Path], object], said: str
) -> None:
    spoil(folder)
    with pytest.raises(ModelFolderInvalid, match=said):
        take(store, LocalFolder(folder), keys[0].public)
    assert [path.name for path in store.path.iterdir()] == [".lock"]


def test_another_keys_signature_is_refused(store: StoreDirectory, folder: Path, keys: tuple[Pair, Pair]) -> None:
    with pytest.raises(ModelFolderInvalid, match=r"theirs\.pem"):
        take(store, LocalFolder(folder), keys[1].public)


def test_a_file_that_changes_after_the_signature_was_checked_is_refused(
    store: StoreDirectory, folder: Path, keys: tuple[Pair, Pair]
) -> None:
    class Changing(NoProgress):
        def begin(self, what: str, total_bytes: int | None = None) -> None:
            if what == "copying":
                content = bytearray((folder / "model.onnx").read_bytes())
                content[-1] ^= 1
                (folder / "model.onnx").write_bytes(content)

    with pytest.raises(ModelFolderInvalid, match=r"model\.onnx is not the file that was signed"):
        add(store, AddRequest(LocalFolder(folder), "added", None, None, keys=(keys[0].public,)), Changing())


def test_a_model_of_the_hub_is_fetched_whole_first(store: StoreDirectory, keys: tuple[Pair, Pair]) -> None:
    with pytest.raises(ModelNotAdded, match="hf download owner/name"):
        take(store, HubModel("owner", "name", None), keys[0].public)


def test_trusted_keys_are_demanded_and_a_key_that_is_named_must_be_one_of_them(keys: tuple[Pair, Pair]) -> None:
    ours, theirs = (pair.public for pair in keys)
    assert acceptable_keys((), ()) == ()
    assert acceptable_keys((), (theirs,)) == (theirs,)
    assert acceptable_keys((ours, theirs), ()) == (ours, theirs)
    assert acceptable_keys((ours, theirs), (theirs,)) == (theirs,)
    with pytest.raises(ConfigurationError, match=r"not among models\.trusted_keys"):
        acceptable_keys((ours,), (theirs,))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        acceptable_keys((ours.with_name("absent.pem"),), ())
