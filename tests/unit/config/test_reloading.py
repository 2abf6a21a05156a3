from pathlib import Path

from edge_rag.config.settings import Settings, changed_keys, load_settings, with_reloadable


def settings(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "edge-rag.toml"
    file.write_text(text)
    return load_settings(file, {"data_directory": tmp_path})


def test_reloadable_settings_are_applied_and_the_others_are_listed(tmp_path: Path) -> None:
    now = settings(tmp_path, "")
    wanted = settings(
        tmp_path,
        """
        listen = "127.0.0.1:9999"
        log.level = "debug"
        limits.question_characters = 100
        limits.concurrent_calls = 3
        access.tokens = "/etc/tokens.json"
        tls.certificate = "/etc/server.pem"
        tls.key = "/etc/server.key"
        tls.client_certificates = true
        generator.mode = "free"
        generator.max_slots = 7
        reranker.passages = 9
        """,
    )
    following = with_reloadable(now, wanted)
    assert set(changed_keys(now, following)) == {
        "log.level",
        "limits.question_characters",
        "access.tokens",
        "tls.certificate",
        "tls.key",
        "generator.mode",
        "reranker.passages",
    }
    assert set(changed_keys(following, wanted)) == {
        "listen",
        "limits.concurrent_calls",
        "tls.client_certificates",
        "generator.max_slots",
    }


def test_equal_settings_have_no_changed_keys(tmp_path: Path) -> None:
    assert changed_keys(settings(tmp_path, "threads = 2"), settings(tmp_path, "threads = 2")) == ()
