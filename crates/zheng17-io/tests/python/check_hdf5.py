"""Reads the file of the HDF5 writer's own test with h5py, first as it is, then after h5py changed it."""

import sys

import h5py
import numpy as np

N_ROWS, N_MEMBERS = 9999, 9000


def check(file):
    wanted = np.arange(N_ROWS * 3).astype(np.int16).reshape(N_ROWS, 3)
    for name in ["plain", "gzip"]:
        np.testing.assert_array_equal(file[name][:N_ROWS], wanted)
        np.testing.assert_array_equal(file[name][5001:5004, 1], wanted[5001:5004, 1])
    texts = ["" if at % 7 == 0 else f"t{at}" for at in range(70_000)]
    assert list(file["texts"].asstr()) == [*texts, "größe 細胞", "x" * 300_000]
    assert file["single"].asstr()[()] == "größe" and file["none"].shape == (0,) and file["nothing"].shape is None
    assert file["table"].asstr()[()].tolist() == [["a", "", "c"], ["d", "e", "f"]]
    records = file["records"][()]
    assert [name.decode() for name in records["name"]] == ["one", "zwei ß"]
    assert records["score"].tolist() == [0.5, 1.5] and records["n"].tolist() == [3, 4]
    assert records["is_it"].tolist() == [True, False]
    many = file["many"]
    assert set(many) >= {str(at) for at in range(N_MEMBERS)}
    assert all(many[str(at)][()] == at % 256 and many[str(at)].attrs["half"] == at / 2 for at in range(N_MEMBERS))
    attributes = file["deep/a/b"].attrs
    assert attributes["text"] == "ß" and attributes["empty"] == "" and attributes["flag"] == True  # noqa: E712
    assert list(attributes["texts"]) == [f"column {at}" for at in range(3000)] and len(attributes["no_texts"]) == 0
    assert attributes["flags"].tolist() == [True, False] and attributes["numbers"].tolist() == [1, 65535]
    assert attributes["numbers"].dtype == np.uint16 and attributes["no_numbers"].dtype == np.float32
    assert set(file["deep"]) == {"a", "a-b"} and "gone" not in file


# Programs in C ask for texts of this type; a type that only looks like it can't be converted.
text = h5py.h5t.C_S1.copy()
text.set_size(h5py.h5t.VARIABLE)
text.set_cset(h5py.h5t.CSET_UTF8)

with h5py.File(sys.argv[1]) as file:
    check(file)
    assert file["texts"].id.get_type().equal(text) and file["single"].id.get_type().equal(text)
    assert file["deep/a/b"].attrs.get_id("texts").get_type().equal(text)

with h5py.File(sys.argv[1], "r+") as file:
    for at in range(500):
        file["many"][f"new {at}"] = at
        file["deep/a/b"].attrs[f"new {at}"] = "text"
    file["plain"].resize((N_ROWS + 500, 3))
    file["plain"][N_ROWS:] = 7
    file["gzip"].resize((N_ROWS + 500, 3))
    file["gzip"][N_ROWS:] = 7
    file["table"][0, 1] = ""
    del file["many/new 3"]
    file["deep/a/b"].attrs["text"] = "ß"

with h5py.File(sys.argv[1]) as file:
    check(file)
    assert (file["plain"][N_ROWS:] == 7).all() and (file["gzip"][N_ROWS:] == 7).all()
    assert len(file["many"]) == N_MEMBERS + 499 and len(file["deep/a/b"].attrs) == 508
