import functools
import re
import tomllib
from pathlib import Path

from pydantic import BaseModel

from edge_rag.config.settings import Settings, load_settings

ANNOTATED = Path(__file__).parents[3] / "deploy" / "edge-rag.toml"


def uncommented() -> str:
    return re.sub(r"^# (\w+ = )", r"\1", ANNOTATED.read_text(), flags=re.MULTILINE)


def sections(model: type[BaseModel], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], type[BaseModel]]:
    found: dict[tuple[str, ...], type[BaseModel]] = {path: model}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= sections(field.annotation, (*path, name))
    return found


def test_the_annotated_file_is_valid(tmp_path: Path) -> None:
    assert load_settings(ANNOTATED).generator == load_settings().generator


def test_every_commented_setting_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text(uncommented())
    load_settings(file)


def test_every_key_is_documented_with_its_description_and_default() -> None:
    values = tomllib.loads(uncommented())
    documented = " ".join(line.removeprefix("#").strip() for line in ANNOTATED.read_text().splitlines())
    every = sections(Settings)
    for path, model in every.items():
        section = ".".join(path)
        here = functools.reduce(lambda table, name: table[name], path, values)
        for key, field in model.model_fields.items():
            if (*path, key) in every:
                continue
            assert key in here, f"{section}.{key} is not in {ANNOTATED.name}"
            assert field.description is not None
            assert field.description in documented
            if field.default is not None and not field.is_required() and field.default_factory is None:
                default = field.default.value if hasattr(field.default, "value") else field.default
                assert here[key] == default, f"{section}.{key} is shown with another default"
