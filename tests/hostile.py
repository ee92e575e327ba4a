"""Model files of people who mean harm: with a right checksum, and anything at all inside.

`python -m tests.hostile SEED COUNT` reads that many of them in a process that may not grow by more than
200 MB, and prints the worst of each kind.
"""

import json
import os
import resource
import sys
import time

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from greenfold import io

from . import memory

MB = 2**20
LIMIT = 200 * MB  # that a process may grow by
SECONDS = 1.0  # of CPU time
P = 2**61 - 1  # Python hashes whole numbers modulo this prime


def opened(content):
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["greenfold"])
    return header, load_tensors(content)


def signed(header, tensors):
    """A file with a right checksum, whatever is in it."""
    text = json.dumps({k: v for k, v in header.items() if k != "sha256"})
    return signed_text(text, tensors)


def signed_text(text, tensors):
    return save_tensors(tensors, {"greenfold": io._sign(text, tensors)})


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


# --- values for anywhere in the tree, each from a generator of random numbers and a free number


def record(number, cls, **state):
    return {"object": cls, "id": number, "state": [[k, v] for k, v in state.items()]}


def deep_references(rng, number, depth=40):
    """Two references to what is before, forty times: 2^40 to anyone who follows them."""
    cls = pick(rng, ["greenfold.learn.standings:Standing", "greenfold.design:Design"])
    fields = 6 if cls.endswith("Standing") else 2
    nodes = [{"record": cls, "id": number, "fields": [0] * fields}]
    for i in range(1, depth):
        both = [{"ref": number + i - 1}] * 2 + [0] * (fields - 2)
        nodes.append({"record": cls, "id": number + i, "fields": both})
    last = {"ref": number + depth - 1}
    ends = [{"set": [last]}, {"dict": [[last, 0]]}, {"set": [{"tuple": [last]}]}, last]
    return [*nodes, pick(rng, ends)]


def wide_text(rng, number):
    """Arrays of text that would be larger than any memory."""
    width = int(rng.choice([0, 5, 10**6, 500_000_000, 2**31, 10**18]))
    letter = rng.choice(["<U", ">U", "U", "|S", "<M", "O", "(9999999,)U", "U5,O,"])
    items = ["a"] * int(rng.choice([0, 1, 3, 10_000]))
    shape = [[len(items)], [-1], [0, 2**62], [2**40] * 3, [1] * 100, ["a"], 7, [2.5], [1e30]]
    return {
        "items": items,
        "dtype": f"{letter}{width}",
        "shape": pick(rng, shape),
    }


def colliding(rng, number):
    """Keys that Python puts in one place."""
    step = int(rng.choice([P, 2**32, 2**60, 1]))
    keys = [step * i for i in range(int(rng.choice([100, 9_000, 20_000])))]
    if rng.random() < 0.3:
        keys = [{"tuple": [k, 0]} for k in keys]
    if rng.random() < 0.5:
        return {"set": keys}
    return {"dict": [[k, 0] for k in keys]}


def nested(rng, number):
    """Lists in lists, or the like, to any depth."""
    text = rng.choice(["[%s]", '{"tuple":[%s]}', '{"dict":[["a",%s]]}', '{"scalar":%s}']) % "*"
    before, after = text.split("*")
    depth = int(rng.choice([50, 400, 900, 20_000]))
    return Raw(before * depth + "0" + after * depth)


def many(rng, number):
    """A hundred kilobytes of the shortest descriptions of things."""
    return repeated(pick(rng, smallest(number)), number, 100_000)


def smallest(number=0):
    return [
        [], {"set": []}, {"dict": []}, {"tuple": []}, {"class": "nn.Tanh"}, {"set": ["a"]},
        {"items": [], "shape": [0]}, {"float": "nan"}, {"text": "words"}, {"array": "twister"},
        {"tensor": "large"}, RANDOM, module(number), record(number, "greenfold.learn.trainer:History"),
        record(number, "greenfold.estimators.regressor:IGLRegressor"),
    ]  # fmt: skip


def repeated(node, number, size):
    """As often as makes `size` bytes, with numbers of their own."""
    text = json.dumps(node)
    nodes = [json.loads(text) for _ in range(size // (len(text) + 2))]
    for i, each in enumerate(nodes):
        if isinstance(each, dict) and "id" in each:
            each["id"] = number + i
    return nodes


RANDOM = {"random_state": {"dict": [
    ["bit_generator", "MT19937"],
    ["state", {"dict": [["key", {"array": "twister"}], ["pos", 7]]}],
    ["has_gauss", 0], ["gauss", 0.0],
]}}  # fmt: skip


def random_state(rng, number):
    """numpy believes any position, also one far outside its memory."""
    bad = json.loads(json.dumps(RANDOM))
    state = bad["random_state"]["dict"]
    state[1][1]["dict"][1][1] = pick(rng, [625, -1, 10**9, 2**63, 1.5, None, "a"])
    if rng.random() < 0.3:
        state[1][1]["dict"][0][1] = {"array": str(rng.choice(["large", "flat", "letters"]))}
    if rng.random() < 0.3:
        state[3][1] = pick(rng, ["a", [], None, 10**400, {"float": "nan"}])
    return bad


def module(number, **state):
    parts = {"parameters": [], "buffers": [], "modules": []}
    return {"module": "nn.Tanh", "id": number, "state": [[k, v] for k, v in state.items()], **parts}


def internals(rng, number):
    """What torch keeps in a module, in the wrong place or of the wrong type."""
    names = [*vars(torch.nn.Module()), *dir(torch.nn.Tanh), "__dict__", "__slots__", "a.b", ""]
    values = [
        None, 5, [], "a", {"dict": [["a", 1]]}, {"set": [1]}, {"class": "nn.Tanh"}, {"float": "nan"},
    ]  # fmt: skip
    name, value = pick(rng, names), pick(rng, values)
    node = module(number)
    node[pick(rng, ["state", "parameters", "buffers", "modules"])] = [[name, value]]
    return node


def attributes(rng, number):
    """Names that a class has a use for already."""
    cls = pick(rng, ["greenfold.estimators.regressor:IGLRegressor", "greenfold.table:Table"])
    names = [*dir(io.known_classes()[cls]), "__dict__", "__class__", 5, None]
    value = pick(rng, [None, {"class": "nn.Tanh"}, "a", []])
    return {"object": cls, "id": number, "state": [["columns", []], [pick(rng, names), value]]}


def tensors_named(rng, number):
    """Tensors that are not there, are something else, or have another order."""
    kind = str(rng.choice(["tensor", "array", "text", "scalar"]))
    name = rng.choice(
        ["large", "empty", "axes", "half", "byte", "complex", "letters", "none", "flat"]
    )
    node = {kind: str(name)}
    if rng.random() < 0.5:
        orders = [[0, 0], [1, 0], [], [10**30], ["a"], list(range(5000)), 5, [0.0], "01", {"a": 0}]
        node["order"] = pick(rng, orders)
    if rng.random() < 0.3:
        node["learned"] = pick(rng, [True, False, None, "a", []])
    if rng.random() < 0.2:
        return {
            "own": pick(rng, [0, -1, 10**9, "a"]),
            "id": number,
            "mode": 1,
            "state": [],
        }
    return {"scalar": node} if rng.random() < 0.2 else node


def records(rng, number):
    """Of any class, with the wrong fields, or referring to itself or to nothing."""
    names = [*io.known_classes(), "subprocess:Popen", "greenfold.io:save", "IGL", "Standing", 5, []]
    name = pick(rng, names)
    tag = str(rng.choice(["object", "record", "module", "class"]))
    value = pick(rng, [{"ref": number}, {"ref": -1}, {"ref": [1]}, 0, 10**4000, "\ud800"])
    pairs = [["a", value]] * int(rng.integers(3))
    ids = [number, number, number, 1, -1, 10**40, "1", None, [1], True]
    return {
        tag: name,
        "id": pick(rng, ids),
        "state": pairs,
        "fields": [value] * int(rng.integers(9)),
        "parameters": pairs if rng.random() < 0.2 else [],
        "buffers": [],
        "modules": pairs if rng.random() < 0.2 else [],
    }


def numbers(rng, number):
    """JSON that is none, or that not everybody reads alike."""
    texts = [
        "NaN", "-Infinity", "1e999", "1" * 4000, "1" * 6000, "-0", "true", "{}",
        '"\\ud800"', '"\\u0000"', '{"":1}', '{"decode":1}', '{"__class__":1}',
        '{"float":"1"}', '{"float":[]}', '{"dict":5}', '{"dict":["ab","cd"]}',
        '{"dict":[[1,2,3]]}', '{"dict":{"ab":1}}', '{"tuple":"abc"}', '{"set":[[]]}',
        '{"set":[],"set":["a"]}', '{"set":[{"dict":[]}]}', '{"set":[1e999,1,true]}',
    ]  # fmt: skip
    return Raw(pick(rng, texts))


class Raw(str):
    """Text that goes into the file as it is."""


VALUES = [
    deep_references, wide_text, colliding, nested, many, random_state, internals, attributes,
    tensors_named, records, numbers,
]  # fmt: skip


def extra_tensors():
    """For the values above to name."""
    return {
        "large": torch.zeros(10_000),
        "flat": torch.zeros(3),
        "empty": torch.zeros(0, 2**40),
        "axes": torch.zeros([1] * 200),
        "half": torch.zeros(2, dtype=torch.bfloat16),
        "byte": torch.zeros(2, dtype=torch.float8_e4m3fn),
        "complex": torch.zeros(2, dtype=torch.complex64),
        "letters": torch.full((3, 2), 2**30, dtype=torch.int32),
        "words": torch.full((1000, 10), 65, dtype=torch.int32),
        "twister": torch.zeros(624, dtype=torch.uint32),
    }


# --- where they go


def places(state):
    """Every list and dictionary of the tree."""
    found, stack = [], [state]
    while stack:
        node = stack.pop()
        if isinstance(node, list | dict) and node:
            found.append(node)
            stack += list(node.values()) if isinstance(node, dict) else node
    return found


def planted(header, tensors, make, rng, where=None):
    """The value as a new attribute of the model, or in the place of something else, or of everything."""
    header = json.loads(json.dumps(header))
    value = make(rng, 10**6)
    raw = value if isinstance(value, Raw) else None
    node = "PLANTED HERE" if raw is not None else value
    where = rng.random() if where is None else where
    if where < 0.5:
        header["state"]["state"].append(["extra_", node])
    elif where < 0.6:
        header["state"] = node
    elif where < 0.7:
        names = [name for name in header if name != "sha256"]
        header[pick(rng, names)] = node
    else:
        put(header["state"], node, rng)
    text = json.dumps({k: v for k, v in header.items() if k != "sha256"})
    if raw is not None:
        text = text.replace('"PLANTED HERE"', raw, 1)
    return signed_text(text, {**tensors, **extra_tensors()})


def put(state, value, rng):
    nodes = places(state)
    node = pick(rng, nodes)
    if isinstance(node, dict):
        node[pick(rng, list(node))] = value
    else:
        node[int(rng.integers(len(node)))] = value


def scrambled(header, rng):
    """Somewhere in the tree one value, name or tag is another."""
    state = json.loads(json.dumps(header["state"]))
    for _ in range(int(rng.integers(1, 3))):
        nodes = places(state)
        node, other = (pick(rng, nodes) for _ in range(2))
        values = [
            None, -1, 1e300, "os.system", "Heat", [], {"class": "IGL"}, {"ref": 3}, {"__x": 1},
            json.loads(json.dumps(other)),
        ]  # fmt: skip
        value = pick(rng, values)
        if isinstance(node, dict):
            key = pick(rng, list(node))
            if rng.random() < 0.3:
                node["decode" if rng.random() < 0.5 else "eval"] = node.pop(key)
            else:
                node[key] = value
        else:
            node[int(rng.integers(len(node)))] = value
    return {**header, "state": state}


def outer(header, tensors, rng):
    """The frame of safetensors: shapes, types and places of tensors that are not so."""
    content = signed(header, tensors)
    size = int.from_bytes(content[:8], "little")
    frame, rest = json.loads(content[8 : 8 + size]), content[8 + size :]
    names = [name for name in frame if name != "__metadata__"]
    name = pick(rng, names) if names else "a"
    entry = frame.setdefault(name, {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]})
    odd = [
        [2**63, 2], [0, 2**63], [2**64 - 1] * 3, [-1], [], [1] * 5000, [0] * 70, "a", None, [1.5],
    ]  # fmt: skip
    kind = int(rng.integers(5))
    if kind == 0:
        entry["shape"] = pick(rng, odd)
    elif kind == 1:
        entry["dtype"] = pick(rng, ["F64", "BOOL", "F8_E4M3", "C64", "F4", "", "O", "I64"])
    elif kind == 2:
        entry["data_offsets"] = pick(rng, [[0, 0], [0, 2**63], [9, 1], [-1, 5], [0], None])
    elif kind == 3:
        metadata = [None, {}, {"greenfold": 5}, {"greenfold": "{}"}, []]
        frame["__metadata__"] = pick(rng, metadata)
    else:
        empty = {"dtype": "F64", "shape": [0, 2**40], "data_offsets": [0, 0]}
        frame.update({f"z{i}": empty for i in range(2000)})
    text = json.dumps(frame).encode()
    if rng.random() < 0.1:
        text = text[:-1] + b"," + text[1:]  # every entry twice
    return len(text).to_bytes(8, "little") + text + rest


def hostile(honest, rng):
    """The kind of attack, and a file."""
    header, tensors = opened(pick(rng, honest))
    kind = int(rng.integers(len(VALUES) + 2))
    if kind == len(VALUES):
        return "scrambled", signed(scrambled(header, rng), tensors)
    if kind > len(VALUES):
        return "outer", outer(header, tensors, rng)
    return VALUES[kind].__name__, planted(header, tensors, VALUES[kind], rng)


# --- what comes of it


def read(content):
    """What it came to, and the seconds it took. Anything but a ValueError is raised."""
    start = time.process_time()
    try:
        model = io.from_bytes(content)
    except ValueError as error:
        if "allocate" in str(error):  # torch's way to say that memory is out
            raise MemoryError from error
        return "refused", time.process_time() - start
    assert isinstance(model, io.MODELS), type(model)
    return "loaded", time.process_time() - start


def confined(files):
    """Read files, named by kind, in this process, which may not grow by more than LIMIT.

    Every allocation counts, whether or not it is ever touched.
    """
    grown = int(memory.field("VmSize") * MB) + LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (grown, grown))
    table = {}
    for kind, content in files:
        try:
            end, seconds = read(content)
        except BaseException as error:
            raise AssertionError(f"{kind}: {type(error).__name__}: {error}") from error
        row = table.setdefault(kind, {"refused": 0, "loaded": 0, "seconds": 0.0, "bytes": 0})
        row[end] += 1
        row["seconds"] = max(row["seconds"], seconds)
        row["bytes"] = max(row["bytes"], len(content))
    return table


def growth(node):
    """The most memory that a file of such nodes takes, in multiples of its size."""
    header, tensors = opened(io.to_bytes(torch.nn.Tanh()))
    content = planted(header, tensors, lambda rng, n: repeated(node, n, 500_000), None, 0)
    pipe = os.pipe()
    child = os.fork()  # with a heap that nothing was freed in
    if not child:
        before = memory.resident()
        model = io.from_bytes(content)
        os.write(pipe[1], str((memory.peak() - before) * MB / len(content)).encode())
        del model
        os._exit(0)
    os.waitpid(child, 0)
    return float(os.read(pipe[0], 100))


def main(seed, count):
    from .models import fitted

    honest = [io.to_bytes(fitted(kind)) for kind in ("two_targets", "classes", "laplace")]
    honest.append(io.to_bytes(torch.nn.Linear(2, 2)))
    for content in honest:  # all that is imported on the way
        read(content)
    rng = np.random.default_rng(seed)
    return confined(hostile(honest, rng) for _ in range(count))


if __name__ == "__main__":
    for kind, row in sorted(main(int(sys.argv[1]), int(sys.argv[2])).items()):
        print(f"{kind:16} {json.dumps(row)}")
