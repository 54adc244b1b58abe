"""Pictures: scenes that are drawn, files that are read with care, and a network that makes them clearer."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from onnxmem import zoo
from onnxmem.app.pictures import read_picture
from onnxmem.app.scenes import SCENES
from onnxmem.errors import UsageError

Image = pytest.importorskip("PIL.Image", reason="the package pillow is not installed")


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("side", [128, 200])
def test_scenes_are_what_the_network_takes(name: str, side: int) -> None:
    picture = read_picture(name, side)
    assert picture.dtype == np.float32
    assert picture.shape[0] % 8 == picture.shape[1] % 8 == 0 and picture.shape[2] == 3
    assert 0 <= picture.min() < picture.max() <= 1
    assert np.array_equal(picture, read_picture(name, side))


@pytest.mark.parametrize("name", SCENES)
def test_the_network_takes_the_colour_cast_and_the_haze_away(name: str) -> None:
    picture = read_picture(name, 128)
    session = onnxruntime.InferenceSession(zoo.build("enhancer").SerializeToString())
    (after,) = session.run(None, {"image": picture.transpose(2, 0, 1)[None]})
    clearer = after[0].transpose(1, 2, 0)
    casts = [np.ptp(each.mean(axis=(0, 1))) for each in (picture, clearer)]
    assert casts[1] < casts[0] / 3
    # Contrast of what is in the picture, not of its cast.
    spreads = [each.mean(axis=2).std() for each in (picture, clearer)]
    assert spreads[1] > spreads[0] * 1.3


def test_the_network_takes_noise_away_and_leaves_edges() -> None:
    picture = np.full((3, 64, 64), 0.4, np.float32)
    picture[:, :, 32:] = 0.6
    noisy = (picture + np.random.default_rng(0).normal(0, 0.01, picture.shape)).astype(np.float32)
    session = onnxruntime.InferenceSession(zoo.build("enhancer").SerializeToString())
    clean, rough = (session.run(None, {"image": each[None]})[0][0] for each in (picture, noisy))
    flat = (slice(None), slice(8, 56), slice(40, 56))
    stronger = (clean[0, 32, 48] - clean[0, 32, 16]) / 0.2
    assert stronger > 1.2
    assert rough[flat].std() / stronger < 0.7 * noisy[flat].std()


def test_files_are_made_smaller_and_turned_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (400, 200), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter, as telephones write it
    image.save(tmp_path / "a.jpg", exif=exif)
    picture = read_picture(str(tmp_path / "a.jpg"), 100)
    assert picture.shape == (96, 48, 3)
    assert picture[0, 0, 0] > 0.9 and picture[0, 0, 1] < 0.1


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, b"GIF89a" + b"\x00" * 99])
def test_what_is_no_picture_is_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(UsageError, match="is not a PNG or JPEG picture"):
        read_picture(str(tmp_path / "a.png"), 100)


def test_a_small_file_with_a_huge_picture_is_refused(tmp_path: Path) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", 60_000, 1_000, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(10_000))), chunk(b"IEND", b""))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    with pytest.raises(UsageError, match="has more than 40,000,000 pixels"):
        read_picture(str(tmp_path / "a.png"), 100)


def test_a_picture_of_a_few_pixels_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (5, 300)).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match="too small: 5 × 300"):
        read_picture(str(tmp_path / "a.png"), 384)
