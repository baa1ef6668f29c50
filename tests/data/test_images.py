"""Do folders of images become the rows, labels and groups that they hold?"""

import sys

import numpy as np
import pytest

from fairveil.data.encoding import Encoder
from fairveil.data.images import load_celeba, load_image_folder
from fairveil.errors import BadStructureError, InvalidParameterError, MissingPackageError

Image = pytest.importorskip("PIL.Image", reason="needs pillow: pip install pillow")


def picture(rng, shape):
    return rng.integers(0, 256, size=shape).astype(np.uint8)


@pytest.fixture
def folder(tmp_path, rng):
    """Two classes of color images of 4 x 6 pixels, one file that is none, and one of another kind."""
    pictures = {}
    for name, n in (("cat", 2), ("dog", 3)):
        (tmp_path / name).mkdir()
        for index in range(n):
            pictures[name, index] = picture(rng, (4, 6, 3))
            Image.fromarray(pictures[name, index]).save(tmp_path / name / f"{index}.png")
    (tmp_path / "dog" / "9.jpg").write_bytes(b"no image")
    (tmp_path / "dog" / "notes.txt").write_text("no image either")
    return tmp_path, pictures


def test_a_folder_for_each_class_becomes_rows_in_order(folder):
    path, pictures = folder
    images = load_image_folder(path, classes=("dog", "cat"), shape=(3, 4, 6))
    assert images.y.tolist() == ["dog"] * 4 + ["cat"] * 2
    assert images.X.dtype == np.float32 and images.X.shape == (6, 72)
    assert np.array_equal(images.X[1].reshape(3, 4, 6), pictures["dog", 1].transpose(2, 0, 1))
    assert np.array_equal(images.X[4].reshape(3, 4, 6), pictures["cat", 0].transpose(2, 0, 1))


def test_a_file_that_is_no_image_is_a_missing_row(folder):
    images = load_image_folder(folder[0], classes=("dog", "cat"), shape=(3, 4, 6))
    assert np.isnan(images.X).all(axis=1).tolist() == [False, False, False, True, False, False]
    rows = Encoder(images.schema(n_public=6)).rows(images.X)
    assert np.isfinite(rows).all()
    assert not rows[3, ::2].any() and rows[3, 1::2].all()


def test_images_are_resized_and_made_gray(folder):
    images = load_image_folder(folder[0], classes=("cat", "dog"), shape=(1, 8, 8))
    assert images.X.shape == (6, 64)
    assert np.nanmin(images.X) >= 0 and np.nanmax(images.X) <= 255


@pytest.mark.parametrize("shape", [(2, 4, 4), (4, 4), (3, 0, 4), (3, 4, 4.5)])
def test_a_shape_of_no_image_is_refused(folder, shape):
    with pytest.raises(InvalidParameterError, match="shape"):
        load_image_folder(folder[0], classes=("cat", "dog"), shape=shape)


def test_a_class_without_a_folder_is_refused(folder):
    with pytest.raises(BadStructureError, match="'bird'"):
        load_image_folder(folder[0], classes=("cat", "bird"), shape=(3, 4, 6))


@pytest.fixture
def celeba(tmp_path, rng):
    (tmp_path / "img_align_celeba").mkdir()
    attributes, partition = ["5", "Male Smiling Young"], []
    for index, (male, smiling, part) in enumerate([(1, -1, 0), (-1, 1, 0), (1, 1, 1), (-1, -1, 2), (1, 1, 0)]):
        name = f"{index:06}.jpg"
        Image.fromarray(picture(rng, (9, 7, 3))).save(tmp_path / "img_align_celeba" / name)
        attributes.append(f"{name} {male:2} {smiling:2}  1")
        partition.append(f"{name} {part}")
    (tmp_path / "img_align_celeba" / "000004.jpg").unlink()
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(attributes))
    (tmp_path / "list_eval_partition.txt").write_text("\n".join([*partition, "../../key 0", "nowhere.jpg 0", "broken"]))
    return tmp_path


def test_the_layout_of_celeba_becomes_labels_and_groups(celeba):
    images = load_celeba(celeba, shape=(3, 9, 7))
    assert (images.y.tolist(), images.sensitive.tolist()) == ([0, 1, 1], [1, 0, 1])
    assert np.isnan(images.X).all(axis=1).tolist() == [False, False, True]  # one image is not there
    assert load_celeba(celeba, partition="validation").y.tolist() == [1]
    assert load_celeba(celeba, "Young", "Smiling", partition="test", shape=(1, 4, 4)).X.shape == (1, 16)
    assert images.schema(n_public=3).sensitive[0].groups == ("0", "1")


def test_a_folder_of_another_layout_is_refused(celeba, tmp_path):
    for change in ({"target": "Happy"}, {"partition": "dev"}):
        with pytest.raises((BadStructureError, InvalidParameterError), match="Expected"):
            load_celeba(celeba, **change)
    (celeba / "list_eval_partition.txt").unlink()
    with pytest.raises(BadStructureError, match=r"list_eval_partition\.txt"):
        load_celeba(celeba)


def test_a_missing_package_names_the_install_command(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match="pip install pillow"):
        load_image_folder(folder[0], classes=("cat", "dog"), shape=(3, 4, 6))
