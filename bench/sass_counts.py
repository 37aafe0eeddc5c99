"""Counts the instructions of NVIDIA kernels per matrix instruction: sass_counts.py NVDISASM CUBIN...

Follows the shortest path through a kernel's main loop that executes the most HMMA and, among those, the most asynchronous copies
(LDGSTS), or in kernels without them the most loads (LDG): the path of aligned tiles without masks. Fails if a kernel needs more
instructions per HMMA than its bar. Bars may only fall."""

import re
import subprocess
import sys
from collections import defaultdict

BARS = {
    "attend<bf16, 64, false,": 5.3,
    "attend<bf16, 128, false,": 4.8,
    "gradient_of_queries<bf16, 64, false,": 7.6,
    "gradient_of_queries<bf16, 128, false,": 5.2,
    "gradient_of_keys<bf16, 64, false,": 7.8,
    "gradient_of_keys<bf16, 128, false,": 5.2,
    "convolve<bf16, OfUniformTaps<Blocking<128, 128, 4>": 4.2,
    "convolve<bf16, OfUniformTaps<Blocking<128, 64, 4>": 6.4,
    "spread<bf16, OfUniformTaps<Blocking<128, 128, 4>": 3.5,
    "spread<bf16, OfUniformTaps<Blocking<128, 64, 4>": 6.0,
    "add_weight_gradients<bf16, OfEvenSides<Blocking<128, 128, 4>": 5.4,
    "add_weight_gradients<bf16, OfEvenSides<Blocking<128, 64, 4>": 8.2,
    "multiply_scores<bf16, Blocking<64, 64, 4>": 9.2,
    "multiply_scores<bf16, Blocking<64, 128, 2>": 5.9,
}
BRANCHES = ("BRA", "EXIT", "RET", "BRX")


def blocks_of(code):
    """Basic blocks of one kernel's disassembly: {label: (instructions, labels of successors)}, in the order of the code."""
    blocks, falls = {}, False

    def start(label):
        if falls:
            blocks[next(reversed(blocks))][1].append(label)
        blocks[label] = ([], [])

    start("entry")
    for label, instruction in re.findall(r"^(\.L_x_\d+):|^\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", code, re.M):
        if label:
            start(label)
            falls = True
            continue
        instructions, successors = blocks[next(reversed(blocks))]
        instructions.append(instruction)
        falls = True
        guarded, name = re.match(r"(@\S+ )?(\S+)", instruction).groups()
        if name.startswith(BRANCHES):
            # BRA.DIV leads to the rare code for lanes that have diverged.
            if not name.startswith("BRA.DIV"):
                successors += re.findall(r"\((\.L_x_\d+)\)", instruction)
            falls = bool(guarded or name.startswith("BRA.DIV") or re.match(r"BRA\S* !?U?P\d", instruction))
            start(f"after {len(blocks)}")
            falls = True
    return blocks


def depth_first(blocks, label, inside):
    """Labels reached from `label`, in postorder, and the edges that close no cycle."""
    state, order, edges, stack = {label: "open"}, [], defaultdict(list), [(label, iter(blocks[label][1]))]
    while stack:
        at, successors = stack[-1]
        following = next(successors, None)
        if following is None:
            state[at] = "closed"
            order.append(at)
            stack.pop()
        elif following in inside and state.get(following) != "open":
            edges[at].append(following)
            if following not in state:
                state[following] = "open"
                stack.append((following, iter(blocks[following][1])))
    return order, edges


def main_loop(blocks):
    """Header and labels of the loop with the most HMMA."""
    reached, _ = depth_first(blocks, "entry", blocks)
    before = defaultdict(list)
    for label in reached:
        for following in blocks[label][1]:
            before[following].append(label)
    loops = {}
    position = {label: i for i, label in enumerate(reversed(reached))}
    for label in reached:
        for header in blocks[label][1]:
            if position[header] <= position[label]:  # a backward edge
                body, todo = loops.setdefault(header, {header}), [label]
                while todo:
                    one = todo.pop()
                    if one not in body:
                        body.add(one)
                        todo += before[one]
    return max(loops.items(), key=lambda loop: sum(number_of("HMMA", blocks[label]) for label in loop[1]))


def number_of(name, block):
    return sum(name in instruction for instruction in block[0])


def count(code):
    """Number of HMMA and of instructions on the path."""
    blocks = blocks_of(code)
    load = "LDGSTS" if "LDGSTS" in code else "LDG"
    header, body = main_loop(blocks)
    order, edges = depth_first(blocks, header, body)
    best = {}
    for label in order:
        rest = [best[following] for following in edges[label] if following in best]
        if header in blocks[label][1]:
            rest.append((0, 0, 0))
        if rest:
            matrix, copies, others = min(rest)
            best[label] = (matrix - number_of("HMMA", blocks[label]), copies - number_of(load, blocks[label]),
                           others + len(blocks[label][0]))
    matrix, _, instructions = best[header]
    return -matrix, instructions


def kernels(nvdisasm, cubin):
    """{short name: disassembly}."""
    text = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    for name, code in re.findall(r"^\.text\.(\S+):\n(.*?)(?=^\s*\.section|\Z)", text, re.M | re.S):
        full = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout
        yield re.sub(r"hearth::(rt|ops)::|\(anonymous namespace\)::", "", full).split("(")[0].removeprefix("void "), code


def main(nvdisasm, cubins):
    failed, found = False, set()
    for name, code in (kernel for cubin in cubins for kernel in kernels(nvdisasm, cubin)):
        for bar in (bar for bar in BARS if name.startswith(bar)):
            matrix, instructions = count(code)
            found.add(bar)
            failed |= instructions / matrix > BARS[bar]
            print(f"{name}: {instructions} instructions for {matrix} HMMA, {instructions / matrix:.2f} each; at most {BARS[bar]}")
    for bar in BARS.keys() - found:
        print(f"{bar}...: no such kernel")
    return failed or found != BARS.keys()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
