#!/usr/bin/env python3
"""Writes the instructions of an AMD GPU as C++: generate.py TINYGRAD gfx11|gfx12 OUT.cpp

TINYGRAD is the folder of the unpacked package of that name, which carries AMD's tables: opcodes and operands from the ISA's XML and
the pseudocode from the ISA's document. What pseudocode.py cannot translate is written by hand (by_hand.cpp); what neither knows has no
function, and execution stops there with its name.
"""

import importlib
import re
import sys

from pseudocode import Translator, Unknown, Value

ARCHITECTURES = {"gfx11": "rdna3", "gfx12": "rdna4"}
SCALAR, LANES, ACCESS = "Scalar", "Lanes", "Access"
# Which enumeration of opcodes belongs to which encoding, and what its instructions work on.
ENCODINGS = {
    "SOP1": SCALAR, "SOP2": SCALAR, "SOPK": SCALAR, "SOPC": SCALAR, "SOPP": None, "SMEM": None,
    "VOP1": LANES, "VOP2": LANES, "VOPC": LANES, "VOP3": LANES, "VOP3SD": LANES, "VOP3P": LANES, "VOPD": None,
    "DS": ACCESS, "FLAT": ACCESS, "GLOBAL": ACCESS, "SCRATCH": ACCESS, "MUBUF": None,
}
NEWER_NAMES = {"FLAT": "VFLAT", "GLOBAL": "VGLOBAL", "SCRATCH": "VSCRATCH", "MUBUF": "VBUFFER"}
# Control flow, waits, what crosses lanes, matrix products, and what the pseudocode says wrongly or not at all.
BY_HAND = re.compile(r"""S_(BRANCH|CBRANCH\w*|SETPC\w*|SWAPPC\w*|GETPC\w*|CALL\w*|ENDPGM\w*|BARRIER\w*|WAIT\w*|NOP|SLEEP\w*|CLAUSE
    |DELAY_ALU|SENDMSG\w*|GETREG\w*|SETREG\w*|ICACHE\w*|SET_INST\w*|TRAP|SETHALT|VERSION|CODE_END|GET_BARRIER\w*|WAKEUP\w*)
    |V_(READ\w*LANE\w*|WRITELANE\w*|PERMLANE\w*|WMMA\w*|SWMMAC\w*|FMA_MIX\w*|DIV_SCALE\w*|DIV_FMAS\w*|TRIG_PREOP\w*|PERM_B32|NOP
    |SWAP\w*|MOVREL\w*|DOT\w*)
    |DS_(BPERMUTE|PERMUTE|SWIZZLE)\w*|GLOBAL_(INV|WB\w*)|BUFFER_GL\w*""", re.VERBOSE)
# Where the document rounds a thing twice, or takes turns for radians: (what it says, what the hardware does).
CORRECTIONS = [
    (re.compile(r"pow\(2\.0F?, "), "exp2("),
    (re.compile(r"pow\(16'2\.0, "), "exp2("),
    (re.compile(r"sin\(S0\.f(32|16) \* \d+'F\(PI \* 2\.0\)\)"), r"sin_turns(S0.f\1)"),
    (re.compile(r"cos\(S0\.f(32|16) \* \d+'F\(PI \* 2\.0\)\)"), r"cos_turns(S0.f\1)"),
    (re.compile(r"S0\.f(\d+) \* 2\.0F? \*\* S1\.i32"), r"ldexp(S0.f\1, S1.i32)"),
    (re.compile(r"(?:\d+')?1\.0F? / sqrt\(S0\.f(\d+)\)"), r"rsq(S0.f\1)"),
    (re.compile(r"= (?:\d+')?1\.0F? / S0\.f(\d+)"), r"= rcp(S0.f\1)"),
    (re.compile(r"D0\.f(\d+) = floor\(S0\.f\d+ \+ (?:\d+')?0\.5F?\);\s*if .*?endif", re.DOTALL), r"D0.f\1 = rndne(S0.f\1)"),
    # Of two numbers that are neither zero nor infinite, an estimate that is no number has overflowed on the way.
    (re.compile(r"D0\.f(\d+) = sign_out \? -abs\(S0\.f\d+\) : abs\(S0\.f\d+\)"),
     r"D0.f\1 = sign_out ? -overflowed(S0.f\1) : overflowed(S0.f\1)"),
    (re.compile(r"TRAPSTS\.\w+ = 1;?"), ""),
    (re.compile(r"WAVE_MODE\.IEEE"), "IEEE"),
    (re.compile(r"addr\s*=\s*Calc\w+Addr\([^)]*\)\s*;?"), ""),
    (re.compile(r"\baddr\b"), "ADDR"),
]


def corrected(text):
    for wrong, right in CORRECTIONS:
        text = wrong.sub(right, text)
    return text


class Wide:
    """Registers of one lane in a row, as memory instructions name them: DATA[63 : 32], VDATA.u32."""

    def __init__(self, array):
        self.array = array

    def word(self, k):
        return f"x.{self.array}[{32 * k} + lane]"


class Access(Translator):
    wide = {"DATA": Wide("data"), "DATA2": Wide("data2"), "VDATA": Wide("data"), "RETURN_DATA": Wide("result")}

    def word(self, name):
        if name not in self.wide:
            return super().word(name)
        wide = self.wide[name]
        if self.peek()[0] == "suffix":
            bits = int(self.peek()[1][2:])
            kind = self.take()[1][1]
            both = f"(uint64_t{{{wide.word(1)}}} << 32 | {wide.word(0)})"
            whole = Value(wide.word(0), "u", 32) if bits <= 32 else Value(both, "u", 64)
            return self.reinterpreted(whole, kind, bits)
        self.take("[")
        high = int(self.take()[1])
        self.take(":")
        low = int(self.take()[1])
        self.take("]")
        word = Value(f"({wide.word(low // 32)} >> {low % 32})", "u", 32)
        return self.reinterpreted(word, "u", high - low + 1)


def access(text):
    """The body for one lane, and whether it loads and stores."""
    def named(name):
        simple = {"ADDR": Value("address", "u", 64), "OFFSET": Value("x.offset", "u", 32), "OFFSET0": Value("x.offset0", "u", 32),
                  "OFFSET1": Value("x.offset1", "u", 32), "laneId": Value("lane", "i", 32)}
        return simple.get(name)

    def assign(name, kind, bits, high, low, text):
        if name not in ("RETURN_DATA", "VDATA"):
            return None
        if high is None:
            bits = bits or 32
            stored = f"bits_of({text})"
            if bits == 64:
                return f"x.result[lane] = uint32_t({stored}); x.result[32 + lane] = uint32_t(uint64_t({stored}) >> 32);"
            return f"x.result[lane] = uint32_t({stored});"
        at = f"x.result[{int(low) // 32 * 32} + lane]"
        if int(high) - int(low) == 31:
            return f"{at} = bits_of({text});"
        return f"{at} = with_bits({at}, {high} % 32, {low} % 32, bits_of({text}));"

    # DS: some entries add the offset that the instruction carries, others leave it out.
    offset = "" if "OFFSET" in text else " + x.offset"
    lines = Access(text, named, assign).translate()
    body = [f"const uint64_t address = x.address[lane]{offset};", *lines]
    return body, any("x.result" in line.split("=")[0] for line in lines), any("x.store" in line for line in lines)


def assign_register(name, kind, bits, high, low, text):
    if name in ("VCC", "EXEC", "D0") and low == "lane":
        return f"lane_mask |= uint32_t(({text}) != 0) << lane;"
    if name == "SCC":
        return f"x.scc = ({text}) != 0;"
    if name in ("EXEC", "VCC", "M0") and low is None:
        return f"x.{name.lower()} = uint32_t({text});"
    if name not in ("D0", "D1"):
        return None
    if name == "D1" and high is None and bits == 1:
        return f"lane_mask |= uint32_t(({text}) != 0) << lane;"
    if high is not None:
        if int(high) < int(low):
            raise Unknown("a destination that is reversed")
        return f"{name} = with_bits({name}, {high}, {low}, bits_of({text}));"
    if low is not None:
        return f"{name} = with_bits({name}, {low}, {low}, bits_of({text}));"
    if bits is None or bits == 64:
        return f"{name} = bits_of<uint64_t>({text});" if kind != "f" else f"{name} = bits_of(double({text}));"
    if kind == "f":
        ctype = {16: "Half", 32: "float"}[bits]
        return f"{name} = with_bits({name}, {bits - 1}, 0, bits_of({ctype}({text})));"
    return f"{name} = with_bits({name}, {bits - 1}, 0, bits_of({text}));"


def registers(text, wave):
    def named(name):
        simple = {"S0": Value("S0", "u", 64), "S1": Value("S1", "u", 64), "S2": Value("S2", "u", 64), "D0": Value("D0", "u", 64),
                  "SCC": Value("x.scc", "u", 1), "SIMM16": Value("x.simm16", "i", 16), "SIMM32": Value("x.literal", "u", 32),
                  "EXEC": Value("uint64_t{x.exec}", "u", 64), "EXEC_LO": Value("x.exec", "u", 32), "M0": Value("x.m0", "u", 32),
                  "IEEE": Value("true", "u", 1), "VCC": Value("uint64_t{x.carry}" if wave else "uint64_t{x.vcc}", "u", 64)}
        if wave:
            simple["laneId"] = Value("lane", "i", 32)
        return simple.get(name)

    # S_BREV: the bits of all in reverse.
    text = re.sub(r"D0\.u(\d+)\[\d+ : 0\] = ", r"D0.u\1 = ", text) if re.search(r"\[0 : \d+\]", text) else text
    return Translator(text, named, assign_register).translate()


def function(name, kind, text):
    """C++ of the function, and its properties."""
    flags = {"result": False, "loads": False, "stores": False}
    text = corrected(text)
    if kind == ACCESS:
        body, flags["loads"], flags["stores"] = access(text)
        lines = ["for (int lane = 0; lane < 32; ++lane) {", "if ((x.on >> lane & 1) == 0) continue;", *body, "}"]
    elif kind == LANES:
        body = registers(text, True)
        flags["result"] = any(line.startswith("lane_mask |=") for line in body)
        used = " ".join(body)
        head = [f"const uint64_t S{k} = x.source<{k}>(lane);" for k in range(3) if re.search(rf"\bS{k}\b", used)]
        writes = re.search(r"\bD0\b", used)
        if writes:
            head.append("uint64_t D0 = x.destination(lane);")
        lines = ["uint32_t lane_mask = 0;"] if flags["result"] else []
        lines += ["for (int lane = 0; lane < 32; ++lane) {", "if ((x.exec >> lane & 1) == 0) continue;", *head, *body]
        lines += ["x.write(lane, D0);"] if writes else []
        lines += ["}"] + (["x.result = lane_mask;"] if flags["result"] else [])
    else:
        body = registers(text, False)
        used = " ".join(body)
        lines = [f"const uint64_t S{k} = x.s{k};" for k in range(2) if re.search(rf"\bS{k}\b", used)]
        writes = re.search(r"\bD0\b", used)
        lines += ["uint64_t D0 = x.d;"] if writes else []
        lines += body + (["x.d = D0;"] if writes else [])
    return [f"void {name}({kind}& x) {{", *lines, "}"], flags


def operand(operands, names):
    """Bits and class ('h', 'f', 'd' for floats that signs can change, else 'i') of the first of these that the instruction has."""
    for name in names:
        if name in operands:
            form, bits, _ = operands[name]
            kind = {"FMT_NUM_F16": "h", "FMT_NUM_F32": "f", "FMT_NUM_F64": "d", "FMT_NUM_PK2_F16": "p"}.get(form.name, "i")
            return bits, kind
    return 0, "i"


# Fields of an encoding that hold its destination and its sources.
OPERANDS = [("vdst", "sdst", "sdata", "vdata"), ("src0", "vsrc0", "ssrc0", "data0", "data", "vsrc"), ("src1", "vsrc1", "ssrc1", "data1"),
            ("src2",)]


class Source:
    """The C++ of one generation: functions, of which equal ones are written once, and a table for each encoding."""

    def __init__(self):
        self.functions, self.tables, self.names, self.unknown = [], [], {}, []

    def function_of(self, op, encoding, kind, text):
        """What the table says of the function and its properties."""
        none = "nullptr", {"result": False, "loads": False, "stores": False}
        plain = re.sub(r"_E(32|64)$", "", op.name)
        if not kind or not text or BY_HAND.fullmatch(plain):
            return none
        try:
            lines, flags = function("NAME", kind, text)
        except (Unknown, ValueError, KeyError) as error:
            self.unknown.append(f"{op.name}: {error}")
            return none
        key = kind, "\n".join(lines)
        if key not in self.names:
            self.names[key] = f"{encoding.lower()}_{plain}"
            self.functions += [lines[0].replace("NAME", self.names[key]), *lines[1:]]
        return f"reinterpret_cast<Function>(&{self.names[key]})", flags

    def table(self, encoding, kind, opcodes, operands, pcode):
        self.tables.append(f"const Operation {encoding.lower()}[] = {{")
        for op in opcodes:
            run, flags = self.function_of(op, encoding, kind, pcode.get(op))
            sizes = [operand(operands.get(op, {}), names) for names in OPERANDS]
            bits, kinds = ", ".join(str(size[0]) for size in sizes), "".join(size[1] for size in sizes)
            plain = re.sub(r"_E(32|64)$", "", op.name)
            properties = ", ".join(str(flags[name]).lower() for name in ("result", "loads", "stores"))
            self.tables.append(f'  {{"{plain}", {op.value}, {run}, Kind::{(kind or "hand").lower()}, {{{bits}}}, "{kinds}", {properties}}},')
        self.tables.append("};")

    def write(self, generation, out):
        every = [f"      {{Encoding::{e.lower()}, {e.lower()}}}," for e in ENCODINGS]
        lines = ['#include "instruction.h"', "", "namespace machine_code {", "namespace {", *self.functions, *self.tables,
                 "}  // namespace", f"std::span<const Table> {generation}_tables() {{", "  static const Table all[] = {", *every, "  };",
                 "  return all;", "}", "}  // namespace machine_code", ""]
        with open(out, "w") as file:
            file.write("\n".join(lines))


def main(tinygrad, generation, out):
    sys.path.insert(0, tinygrad)
    package = f"tinygrad.runtime.autogen.amd.{ARCHITECTURES[generation]}"
    enum, operands, pcode = (importlib.import_module(f"{package}.{part}") for part in ("enum", "operands", "str_pcode"))
    source = Source()
    for encoding, kind in ENCODINGS.items():
        name = NEWER_NAMES.get(encoding, encoding) if generation == "gfx12" else encoding
        source.table(encoding, kind, getattr(enum, f"{name}Op"), operands.OPERANDS, pcode.PCODE)
    source.write(generation, out)
    print(f"{generation}: {len(source.names)} functions")
    for line in source.unknown:
        print("  unknown", line)


if __name__ == "__main__":
    main(*sys.argv[1:])
