"""Test array datasets: integer, slice and array indices, batched fetch, subsets, concatenation."""

import copy
import pickle

import numpy as np
import pytest

from needle import data
from needle.errors import ShapeError


class Squares(data.Dataset):
    """Sample i is i squared."""

    def __getitem__(self, index):
        if not 0 <= index < 5:
            raise IndexError(index)
        return self.apply_transforms(index**2)

    def __len__(self):
        return 5


def image_arrays(n=6, **options):
    images = np.random.default_rng(0).integers(0, 256, (n, 4, 3, 2), dtype=np.uint8)
    return images, data.ImageArrays(images, np.arange(n, dtype=np.uint8), **options)


def test_transforms_of_a_dataset_run_in_order():
    dataset = Squares(transforms=[lambda x: x + 1, lambda x: x * 10])
    assert [dataset[i] for i in range(5)] == [10, 20, 50, 100, 170]
    assert Squares().apply_transforms(3) == 3


@pytest.mark.parametrize(
    "make",
    [
        data.Compose,
        data.OneOf,
        lambda given: Squares(transforms=given),
        lambda given: data.Digits(transforms=given),
        lambda given: data.TarShards(["x.tar"], transforms=given),
        lambda given: data.DataLoader(Squares(), transforms=given),
        lambda given: data.GlobalDataLoader(data.Digits(), transforms=given),
    ],
)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([data.ToFloat(), data.ToCHW], r"ToCHW is a class; write ToCHW\(\)"),
        ([None], "must be callable, got None"),
        ([[data.ToCHW()]], "must be callable, got .ToCHW"),
        (3, "must be a list, got int"),
        (data.ToCHW(), "must be a list, got ToCHW; put it in"),
        ("flip", "must be callable, got 'f'"),
    ],
)
def test_what_is_no_transform_is_refused_when_it_is_given(make, given, message):
    with pytest.raises(TypeError, match=message):
        make(given)


def test_a_class_without_calls_is_a_conversion():
    assert Squares(transforms=iter([float, str]))[2] == "4.0"


@pytest.mark.parametrize("collate", [data.ToCHW, 3])
def test_a_collate_that_cannot_be_called_is_refused(collate):
    with pytest.raises(TypeError, match="DataLoader: "):
        data.DataLoader(Squares(), collate=collate)


def test_a_bare_dataset_says_what_to_define():
    with pytest.raises(NotImplementedError, match="must define __getitem__"):
        data.Dataset()[0]
    with pytest.raises(NotImplementedError, match="must define __len__"):
        len(data.Dataset())


def test_an_index_out_of_range_ends_iteration_over_a_dataset():
    assert [int(row[0]) for row in data.ArrayDataset(np.arange(3))] == [0, 1, 2]


@pytest.mark.parametrize(
    "arrays", [(), (np.zeros(3), np.zeros(4)), (np.float32(1),)], ids=["none", "lengths", "scalar"]
)
def test_arrays_of_different_lengths_are_refused(arrays):
    with pytest.raises(
        ShapeError, match="ArrayDataset: the first axes of all arrays must have the same size"
    ):
        data.ArrayDataset(*arrays)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_images_come_in_the_layout_and_dtype(layout, dtype):
    images, dataset = image_arrays(layout=layout, dtype=dtype)
    want = images if dtype == "uint8" else images.astype(np.float32) / np.float32(255)
    if layout == "CHW":
        want = want.transpose(0, 3, 1, 2)
    item, label = dataset[2]
    assert item.dtype == dtype and item.flags.c_contiguous and label == 2
    np.testing.assert_array_equal(item, want[2])
    for batch in (dataset[1:4], dataset[[1, 2, 3]], dataset[np.array([1, 2, 3])]):
        np.testing.assert_array_equal(batch[0], want[1:4])
        assert batch[0].dtype == dtype and batch[1].dtype == np.int64
    assert dataset[2:2][0].shape[0] == 0
    item[:] = 0
    assert images[2].max() > 0  # an item is the caller's own copy
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'uint8', got 'int8'"):
        image_arrays(dtype="int8")


@pytest.mark.parametrize(
    "images, labels, error, message",
    [
        (np.zeros((3, 2, 2, 1), np.float32), [0, 1, 2], ShapeError, "must be uint8 .* got float32"),
        (np.zeros((3, 2, 2, 1), np.uint8), [0, 1], ShapeError, r"with N labels, .* labels \(2,\)"),
        (np.zeros((3, 2, 2, 1), np.uint8), [0, 1, 0.5], TypeError, "whole numbers of int64, got f"),
        (np.zeros((3, 2, 2, 1), np.uint8), [0, 1, np.nan], TypeError, "whole numbers of int64"),
        (np.zeros((3, 2, 2, 1), np.uint8), np.array([0, 1, 2**63], np.uint64), TypeError, "uint64"),
        (np.zeros((3, 2, 2, 1), np.uint8), ["a", "b", "c"], TypeError, "whole numbers of int64"),
    ],
)
def test_labels_of_images_are_whole_numbers(images, labels, error, message):
    with pytest.raises(error, match=f"ImageArrays: .*{message}"):
        data.ImageArrays(images, np.array(labels))
    for whole in ([1.0, 0.0], [[1], [0]]):
        dataset = data.ImageArrays(np.zeros((2, 1, 1, 1), np.uint8), np.array(whole))
        assert dataset.labels.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16"])
@pytest.mark.parametrize("transforms", [None, [lambda x: x]])
def test_images_of_another_scale_may_be_any_numbers(dtype, transforms):
    images = np.arange(8).reshape(2, 2, 2, 1).astype(dtype)
    dataset = data.ImageArrays(images, np.arange(2), transforms, scale=4, layout="HWC")
    for found in (dataset[1][0], next(iter(data.DataLoader(dataset, 2)))[0].numpy()[1]):
        assert found.dtype == np.float32 and np.array_equal(found, images[1] / 4)
    with pytest.raises(ShapeError, match="must be uint8 .*; give the scale of other images"):
        data.ImageArrays(images, np.arange(2), scale=4, dtype="uint8")


def test_transforms_of_images_see_hwc_before_the_axes_move():
    seen = []
    _, dataset = image_arrays(transforms=[lambda x: seen.append(x.shape) or x[:2]])
    assert dataset[0][0].shape == (2, 2, 3) and seen == [(4, 3, 2)]
    assert dataset[0:2][0].shape == (2, 2, 2, 3)


def test_to_chw_and_layout_chw_contradict_each_other():
    with pytest.raises(ValueError, match=r"layout='CHW' moves the axes.*layout='HWC'"):
        image_arrays(transforms=[data.Compose([data.ToCHW()])])
    with pytest.raises(ValueError, match=r"layout='CHW' moves the axes.*layout='HWC'"):
        image_arrays(transforms=iter([data.ToCHW()]))
    _, dataset = image_arrays(transforms=[data.ToCHW()], layout="HWC")
    assert dataset[0][0].shape == (2, 4, 3)
    with pytest.raises(ValueError, match="layout must be 'CHW' or 'HWC', got 'NCHW'"):
        image_arrays(layout="NCHW")


def test_a_subset_keeps_its_order():
    _, dataset = image_arrays()
    subset = data.Subset(dataset, [4, -1, 0])
    assert [int(subset[i][1]) for i in range(3)] == [4, 5, 0] and subset.layout == "CHW"
    assert subset.indices.tolist() == [4, 5, 0]  # a dataset need not support negative indices
    np.testing.assert_array_equal(subset[0:2][1], [4, 5])
    np.testing.assert_array_equal(subset[np.array([2, 0])][1], [0, 4])
    with pytest.raises(IndexError, match=r"each index must be in \[-6, 6\), got 6"):
        data.Subset(dataset, [0, 6])
    with pytest.raises(ShapeError, match=r"for a mask, give np.flatnonzero"):
        data.Subset(dataset, np.ones(6, dtype=bool))
    assert len(data.Subset(dataset, [])) == 0
    subset.indices = [1, -2]
    assert subset[0:2][1].tolist() == [1, 4] == subset.labels.tolist()
    assert next(iter(data.DataLoader(copy.copy(subset), 2)))[1].numpy().tolist() == [1, 4]
    with pytest.raises(IndexError, match=r"Subset: each index must be in \[-6, 6\), got 7"):
        subset.indices = [7]


def test_a_concatenation_counts_through():
    both = data.ConcatDataset(Squares(), data.Subset(Squares(), []), Squares())
    assert len(both) == 10
    assert [both[i] for i in range(10)] == [0, 1, 4, 9, 16] * 2
    assert both[-1] == 16 and both[4:7] == [16, 0, 1]
    with pytest.raises(IndexError, match=r"ConcatDataset: index must be in \[-10, 10\), got 10"):
        both[10]
    with pytest.raises(ValueError, match="at least one dataset"):
        data.ConcatDataset()


class Asked(list):
    """A list that counts the calls of its ``__len__``."""

    asked = 0

    def __len__(self):
        self.asked += 1
        return super().__len__()


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: data.Subset(x, np.arange(len(x)))])
def test_a_batch_of_a_concatenation_asks_for_the_lengths_once(wrap):
    parts = [Asked([i] * 8) for i in range(4)]
    loader = data.DataLoader(wrap(data.ConcatDataset(parts)), batch_size=32)
    for part in parts:
        part.asked = 0
    assert next(iter(loader)).numpy().tolist() == np.repeat(range(4), 8).tolist()
    assert max(part.asked for part in parts) < 8


def test_a_subclass_of_a_concatenation_reads_its_own_items():
    class Doubled(data.ConcatDataset):
        def __getitem__(self, index):
            return 2 * super().__getitem__(index)

    loader = data.DataLoader(data.Subset(Doubled([1, 2], [3]), [2, 0]), batch_size=2)
    assert next(iter(loader)).numpy().tolist() == [6, 2]


SPLITS = [
    ([3, 0, 2], [3, 0, 2]),
    ([0.5, 0.5], [3, 2]),
    ([0.4, 0.3, 0.3], [3, 1, 1]),
    ([1.0], [5]),
    (np.array([4, 1]), [4, 1]),
    (np.array([0.8, 0.2], np.float32), [4, 1]),
]


@pytest.mark.parametrize(("lengths", "sizes"), SPLITS)
@pytest.mark.parametrize("seed", [3, None])
def test_a_random_split_has_every_sample_once(lengths, sizes, seed):
    parts = data.random_split(Files(), lengths, seed=seed)
    assert [len(part) for part in parts] == sizes
    assert sorted(x for part in parts for x in part) == [0, 1, 4, 9, 16]
    for part in parts:
        assert part.classes == ("a", "b")
        assert part.labels.tolist() == Files().labels[part.indices].tolist()


def test_a_seed_alone_decides_a_random_split():
    def split(seed):
        return [part.indices.tolist() for part in data.random_split(range(100), [0.9, 0.1], seed)]

    state = np.random.get_state()[1].tolist()
    assert split(1) == split(1) != split(2)
    assert np.random.get_state()[1].tolist() == state
    assert split(None) != split(None)
    assert sorted(split(1)[0]) != split(1)[0]


@pytest.mark.parametrize(
    "lengths", [[2, 2], [6, -1], [0.5, 0.4], [1, 0], [], [0.5, float("nan")], ["a"], [2.5, 2.5]]
)
def test_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(ValueError, match="lengths must be whole numbers that sum to the 5 samples"):
        data.random_split(Squares(), lengths)


def test_a_fraction_that_is_too_small_is_told():
    with pytest.warns(UserWarning, match="one of the subsets is empty"):
        data.random_split(Squares(), [0.99, 0.01])
    with pytest.raises(TypeError, match="use seed= instead of generator="):
        data.random_split(Squares(), [4, 1], generator=1)


class Files(Squares):
    """Squares with labels and files, and with classes of the given names."""

    def __init__(self, classes="ab"):
        super().__init__()
        self.classes, self.mode, self.labels = tuple(classes), "L", np.array([0, 1, 1, 0, 1])

    def path(self, index):
        return f"{index}.png"

    def encoded(self, index):
        return bytes([index]), int(self.labels[index])


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: pickle.loads(pickle.dumps(x)), copy.copy])
def test_parts_and_joins_keep_what_programs_ask_for(wrap):
    part = wrap(data.Subset(Files(), [4, 0, 3]))
    joined = wrap(data.ConcatDataset([part, Files()]))
    twice = wrap(data.Subset(joined, [0, 3, -1]))
    for dataset, places in ((part, [4, 0, 3]), (joined, [4, 0, 3, *range(5)]), (twice, [4, 0, 4])):
        assert (dataset.classes, dataset.mode) == (("a", "b"), "L")
        assert [dataset.path(i) for i in range(len(dataset))] == [f"{i}.png" for i in places]
        assert [dataset.encoded(i)[0] for i in range(len(dataset))] == [bytes([i]) for i in places]
        assert dataset.labels.tolist() == Files().labels[places].tolist()
    with pytest.raises(IndexError):
        part.encoded(3)
    for lacking in (data.Subset(Squares(), [0]), data.ConcatDataset(Files(), Squares())):
        assert not any(hasattr(lacking, name) for name in ("classes", "labels", "path", "encoded"))
    named = Files()
    named.labels = ["names", "of", "classes"]
    assert not hasattr(data.Subset(named, [0]), "labels")
    part.classes = ("own", "names")
    assert part.classes == ("own", "names")


def test_a_label_of_several_classes_is_told():
    with pytest.warns(UserWarning, match="a label must mean the same class in all datasets"):
        joined = data.ConcatDataset(Files("ab"), Squares(), Files("cd"))
    assert not hasattr(joined, "classes")


@pytest.mark.parametrize("listed", [list, tuple])
def test_a_list_in_place_of_arguments(tmp_path, listed):
    parts = [Squares(), data.ArrayDataset(np.arange(3))]
    joined = data.ConcatDataset(listed(parts))
    assert len(joined) == 8 and joined[4] == 16 and joined[7] == (2,)
    paths = [tmp_path / f"{name}.npy" for name in "ab"]
    for path in paths:
        np.save(path, np.arange(6))
    assert data.NpyDataset(listed(paths))[5] == data.NpyDataset(*paths)[5] == (5, 5)
    with pytest.raises(TypeError, match="ArrayDataset: arrays must be given one by one.*unpack"):
        data.ArrayDataset(listed([np.zeros((4, 2)), np.zeros((4, 2))]))
    assert data.ArrayDataset(listed([1, 2, 3]))[1] == (2,)
    assert data.ArrayDataset(listed([np.zeros(2), np.ones(2)]), [3, 4])[1][1] == 4
    for wrong in ([1, 2], [iter([1])], [Squares]):
        with pytest.raises(TypeError, match="ConcatDataset: a dataset must have a length and it"):
            data.ConcatDataset(listed(wrong))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: data.ImageFolder(path, ".png"),
        lambda path: data.TarShards(path),
        lambda path: data.TarShards([path], "jpg"),
        lambda path: data.write_tar_shards([], path / "%d.tar", fields="npy"),
        lambda path: data.MNIST(path, download=True, mirrors="http://127.0.0.1:9/"),
        lambda path: data.CIFAR10(path, download=True, mirrors="http://127.0.0.1:9/"),
    ],
)
def test_a_text_in_place_of_a_list(tmp_path, make):
    with pytest.raises(TypeError, match="must be a list, got .*; put it in brackets"):
        make(tmp_path)


def test_what_samples_are_is_known_beforehand():
    def spec(dataset):
        fields = dataset.sample_spec()
        return fields and [(field.row_shape, field.dtype.name) for field in fields]

    dataset = image_arrays()[1]
    assert spec(dataset) == [((2, 4, 3), "float32"), ((), "int64")]
    assert spec(image_arrays(layout="HWC", dtype="uint8")[1])[0] == ((4, 3, 2), "uint8")
    cropped = image_arrays(transforms=[data.RandomCrop(size=2)])[1]
    assert spec(cropped)[0] == ((2, 2, 2), "float32")
    for whole in (data.Subset(dataset, [0]), data.ConcatDataset(dataset, data.Subset(dataset, []))):
        assert spec(whole) == spec(dataset)
    assert spec(data.ConcatDataset(dataset, cropped)) is None
    assert spec(image_arrays(transforms=[lambda x: x])[1]) is None
    assert spec(data.ArrayDataset(np.zeros((3, 2)), np.zeros(3, "i4"))) == [
        ((2,), "float64"),
        ((), "int32"),
    ]
