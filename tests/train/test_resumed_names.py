"""Names in the stored command of a run: paths of its working directory, data sets, and code that needs consent."""

import pytest

from understudy.core import imports
from understudy.core.errors import NeedsError
from understudy.train.resuming import ResumedCommand


def test_a_data_set_of_a_named_format_is_no_code(tmp_path, monkeypatch):
    monkeypatch.setattr(imports, "_allowed", set())
    (tmp_path / "robot").mkdir()
    resumed = ResumedCommand(["bc"], "out", tmp_path / "command.json", tmp_path)
    assert resumed.located_data("lerobot:robot") == f"lerobot:{tmp_path / 'robot'}"
    assert resumed.located_data("minari:pen/human-v2") == "minari:pen/human-v2"
    assert resumed.located_data("robot") == str(tmp_path / "robot")
    assert resumed.located_data(None) is None
    with pytest.raises(NeedsError, match="add --import my_module"):
        resumed.located_data("my_module:demonstrations")
