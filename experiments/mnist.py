"""MNIST's training images from the original idx files, checked; and rotated digits made of them.

The files are never downloaded by themselves. They may be gzipped or not; what is checked is their content: the SHA-256 of the
60000 images and of the 60000 labels, without the idx headers, so images from OpenML are held to the same.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.mixtures import Rows
from secfc.errors import DataError, Unavailable

Bytes = npt.NDArray[np.uint8]
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
SHA256 = {
    IMAGES: "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    LABELS: "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
}
COUNT, SIDE = 60000, 28
HELP = (
    f"put MNIST's {IMAGES}.gz and {LABELS}.gz into a folder and say --mnist FOLDER, "
    "or say --openml to fetch the same images from OpenML (data set 554, mnist_784)"
)


def from_folder(folder: Path) -> tuple[Bytes, Bytes]:
    """Images (60000, 28, 28) and labels from the idx files of a folder."""
    images = _checked(IMAGES, _idx(folder, IMAGES, (COUNT, SIDE, SIDE)))
    return images.reshape(COUNT, SIDE, SIDE), _checked(LABELS, _idx(folder, LABELS, (COUNT,)))


def from_openml() -> tuple[Bytes, Bytes]:
    """The same from OpenML, whose first 60000 rows are the training images; needs a network."""
    from sklearn.datasets import fetch_openml

    try:
        data: Any = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff")
    except (OSError, ValueError) as error:
        raise Unavailable(f"OpenML could not be reached ({str(error)[:80]}); {HELP}") from None
    images = _checked(IMAGES, np.asarray(data.data[:COUNT]).astype(np.uint8))
    return images.reshape(COUNT, SIDE, SIDE), _checked(LABELS, np.asarray(data.target[:COUNT]).astype(np.uint8))


def _idx(folder: Path, name: str, shape: tuple[int, ...]) -> Bytes:
    """The values of an idx file of unsigned bytes: magic 0, 0, 8, dimensions; their lengths; the bytes."""
    zipped, plain = folder / f"{name}.gz", folder / name
    if not zipped.exists() and not plain.exists():
        raise DataError(f"{folder} holds neither {zipped.name} nor {name}; {HELP}")
    try:
        raw = gzip.decompress(zipped.read_bytes()) if zipped.exists() else plain.read_bytes()
    except (OSError, EOFError) as error:
        raise DataError(f"{zipped} cannot be read ({error}); {HELP}") from None
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    if not raw.startswith(header):
        raise DataError(f"{name} in {folder} is not the idx file of {shape} unsigned bytes; {HELP}")
    return np.frombuffer(raw, dtype=np.uint8, offset=len(header))


def _checked(name: str, values: Bytes) -> Bytes:
    if hashlib.sha256(values.tobytes()).hexdigest() != SHA256[name]:
        raise DataError(f"{name} is not MNIST's: its SHA-256 is another; fetch it again")
    return values


def rotated(images: Bytes, top: int) -> Rows:
    """Every image turned by 0, 90, 180 and 270 degrees, the angle being its class; pixels are whole numbers up to `top`."""
    turned = np.concatenate([np.rot90(images, turns, axes=(1, 2)).reshape(len(images), -1) for turns in range(4)])
    truth = np.repeat(np.arange(4), len(images))
    return Rows(turned.astype(np.float64), float(top), 0, truth, truth)
