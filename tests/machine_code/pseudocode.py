"""Translates the pseudocode by which AMD documents an instruction to C++.

The pseudocode is a small typed language: `D0.f32 = S0.f32 + S1.f32`, `S0.u32[4 : 0]`, `{ S0.u32, S1.u32 }`, `if ... then ...
endif`, `for i in 0 : 31 do ... endfor`. A parser by recursive descent gives each expression its C++ text and its type, kind
('u', 'i', 'f') and bits, because what `>>` or `64'F(x)` mean depends on it. What a statement assigns to is a word of instruction.h.
"""

import re
from dataclasses import dataclass


class Unknown(Exception):
    """The translator has no rule for this text."""


@dataclass(frozen=True)
class Value:
    """An expression in C++: its text and its type."""
    text: str
    kind: str
    bits: int

    def ctype(self):
        return ctype(self.kind, self.bits)


TOKEN = re.compile(r"""\s*(?:(?P<sized>\d+'(?=[\d-])) | (?P<cast>\d+'[UIFB])
    | (?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?|\d+\.\d*F?|\d+(?:ULL|LL|U|F)?) | (?P<suffix>\.[a-z]+\d+) | (?P<word>[A-Za-z_][\w.]*?(?=\.[uifb]+\d+\b|\W|$))
    | (?P<symbol><<|>>|<=|>=|==|!=|<>|&&|\|\||\*\*|\+=|-=|[-+*/%&|^~!<>=?:;,.()\[\]{}]))""", re.VERBOSE)
KEYWORDS = {"if", "then", "elsif", "else", "endif", "for", "in", "do", "endfor", "declare", "break", "return", "while", "endwhile"}
# Left-associative binary operators, the loosest first.
LEVELS = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]
COMPARISONS = {"==", "!=", "<>", "<", "<=", ">", ">=", "&&", "||"}


def ctype(kind, bits):
    if kind == "f":
        return {16: "Half", 32: "float", 64: "double"}[bits]
    whole = next(b for b in (8, 16, 32, 64, 128) if bits <= b)
    return f"{'' if kind == 'i' else 'u'}int{whole}_t"


def tokens_of(text):
    text = re.sub(r"//[^\n]*", "", text)
    at, found = 0, []
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if not match:
            raise Unknown(f"the text {text[at:at + 20]!r}")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found


class Translator:
    """One instruction. `named` says what a name reads: a Value; `assign` is called with (name, kind, bits, high, low, text) and
    answers the C++ that stores, or None for a local variable."""

    def __init__(self, text, named, assign, memory=None):
        self.tokens, self.at = tokens_of(text), 0
        self.named, self.assign, self.memory = named, assign, memory
        self.locals, self.lambdas, self.bound = {}, {}, {}

    # Tokens.
    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ("end", "")

    def take(self, expected=None):
        token = self.peek()
        if token[0] == "end":
            raise Unknown("an early end")
        if expected is not None and token[1] != expected:
            raise Unknown(f"{token[1]!r} where {expected!r} was expected")
        self.at += 1
        return token

    def accept(self, text):
        if self.peek()[1] == text:
            self.at += 1
            return True
        return False

    # Statements.
    def translate(self):
        body = self.statements(())
        if self.peek()[0] != "end":
            raise Unknown(f"{self.peek()[1]!r} after the end")
        declared = [f"{ctype(kind, bits)} {name}{f'[{size}]' if size else ''} = {{}};" for name, (kind, bits, size) in self.locals.items()]
        return declared + body

    def statements(self, ends):
        lines = []
        while self.peek()[0] != "end" and self.peek()[1] not in ends:
            if not self.accept(";"):
                lines += self.statement()
        return lines

    def statement(self):
        word = self.peek()[1]
        if word == "if":
            return self.condition()
        if word == "for":
            return self.loop()
        if word == "declare":
            return self.declaration()
        if word == "break":
            self.take()
            return ["break;"]
        if word == "{":
            return self.split()
        if self.peek(1)[1] == "=" and self.peek(2)[1] == "lambda":
            return self.function()
        return self.assignment()

    def condition(self):
        self.take("if")
        lines = [f"if ({self.expression().text}) {{"]
        self.take("then")
        while True:
            lines += self.statements(("elsif", "else", "endif"))
            if self.accept("elsif"):
                lines.append(f"}} else if ({self.expression().text}) {{")
                self.take("then")
            elif self.accept("else"):
                lines.append("} else {")
            else:
                self.take("endif")
                return lines + ["}"]

    def loop(self):
        self.take("for")
        name = self.take()[1]
        self.take("in")
        first = self.expression(ranges=False)
        self.take(":")
        last = self.expression(ranges=False)
        self.take("do")
        outer, self.bound = self.bound, {**self.bound, name: Value(name, "i", 32)}
        body = self.statements(("endfor",))
        self.take("endfor")
        self.bound = outer
        return [f"for (int32_t {name} = {first.text}; {name} <= {last.text}; ++{name}) {{", *body, "}"]

    def declaration(self):
        self.take("declare")
        name = self.take()[1]
        self.take(":")
        bits, kind = self.take()[1].split("'")
        size = 0
        if self.accept("["):
            size = int(self.take()[1])
            self.take("]")
        self.locals[name] = ("u" if kind == "B" else kind.lower(), int(bits), size)
        return []

    def function(self):
        """Kept as tokens: its arguments have types only where it is called."""
        name = self.take()[1]
        self.take("=")
        self.take("lambda")
        self.take("(")
        parameters = []
        while not self.accept(")"):
            parameters.append(self.take()[1])
            self.accept(",")
        self.take("(")
        depth, start = 1, self.at
        while depth:
            depth += {"(": 1, ")": -1}.get(self.take()[1], 0)
        self.lambdas[name] = (parameters, self.tokens[start:self.at - 1])
        return []

    def split(self):
        """{ D1.u1, D0.u64 } = E: the last name takes the low bits."""
        self.take("{")
        names = []
        while not self.accept("}"):
            names.append((self.take()[1], self.take()[1]))
            self.accept(",")
        self.take("=")
        value = self.expression()
        lines, low = [f"const {value.ctype()} whole = {value.text};"], 0
        for name, suffix in reversed(names):
            kind, bits = suffix[1], int(suffix[2:])
            lines.append(self.store(name, kind, bits, None, None, f"static_cast<{ctype(kind, bits)}>(whole >> {low})"))
            low += bits
        return ["{", *lines, "}"]

    def assignment(self):
        name = self.take()[1]
        if name == "MEM":
            return self.memory_assignment()
        kind, bits, high, low, element = None, None, None, None, None
        while self.peek()[1] == "[" or self.peek()[0] == "suffix":
            if self.peek()[0] == "suffix":
                suffix = self.take()[1]
                kind, bits = suffix[1], int(suffix[2:])
                continue
            self.take("[")
            first = self.expression(ranges=False)
            if self.accept(":"):
                high, low = first.text, self.expression(ranges=False).text
            else:
                element = first.text
            self.take("]")
        operator = self.take()[1]
        if operator not in ("=", "+=", "-="):
            raise Unknown(f"the statement {name} {operator}")
        value = self.expression()
        if operator != "=":
            before = self.read(name, kind, bits)
            value = self.binary(operator[0], before, value)
        return [self.store(name, kind, bits, high, low if high is not None else element, value.text, value)]

    def store(self, name, kind, bits, high, low, text, value=None):
        kind = "u" if kind == "b" else kind
        if name not in self.locals and (line := self.assign(name, kind, bits, high, low, text)) is not None:
            return line
        if name not in self.locals:
            part = high is not None or low is not None
            self.locals[name] = ("u", 64, 0) if part else (kind or value.kind, bits or value.bits, 0)
        local = self.locals[name]
        if low is not None and high is None and local[2]:
            return f"{name}[{low}] = {text};"
        if low is not None:
            return f"{name} = with_bits({name}, {high or low}, {low}, bits_of({text}));"
        return f"{name} = static_cast<{ctype(*local[:2])}>({text});"

    def memory_assignment(self):
        self.take("[")
        address = self.expression()
        self.take("]")
        suffix = self.take()[1]
        kind, bits = suffix[1], int(suffix[2:])
        operator = self.take()[1]
        value = self.expression()
        if operator != "=":
            value = self.binary(operator[0], self.loaded(address, kind, bits), value)
        stored = ctype("u" if kind == "b" else kind, bits)
        return [f"x.store<{stored}>(lane, {address.text}, static_cast<{stored}>({value.text}));"]

    def loaded(self, address, kind, bits):
        kind = "u" if kind == "b" else kind
        return Value(f"x.load<{ctype(kind, bits)}>(lane, {address.text})", kind, bits)

    # Expressions.
    def expression(self, ranges=True):
        condition = self.level(0)
        if not self.accept("?"):
            return condition
        yes = self.expression(ranges)
        self.take(":")
        no = self.expression(ranges)
        like = yes if yes.bits >= no.bits else no
        return Value(f"({condition.text} ? {like.ctype()}({yes.text}) : {like.ctype()}({no.text}))", like.kind, like.bits)

    def level(self, n):
        if n == len(LEVELS):
            return self.power()
        value = self.level(n + 1)
        while self.peek()[1] in LEVELS[n] and self.peek()[0] == "symbol":
            value = self.binary(self.take()[1], value, self.level(n + 1))
        return value

    def binary(self, operator, a, b):
        operator = {"<>": "!="}.get(operator, operator)
        if operator in COMPARISONS:
            if b.text in ("DENORM", "DENORMd"):
                return Value(f"is_denormal({a.text})", "u", 1)
            if "i" in (a.kind, b.kind) and "u" in (a.kind, b.kind):
                kind, bits = "u", max(a.bits, b.bits)
                a, b = (Value(f"{ctype(kind, bits)}({v.text})", kind, bits) for v in (a, b))
            return Value(f"({a.text} {operator} {b.text})", "u", 1)
        if operator in ("<<", ">>"):
            return Value(f"{'shift_left' if operator == '<<' else 'shift_right'}({a.text}, {b.text})", a.kind, max(a.bits, 8))
        if "f" in (a.kind, b.kind):
            like = a if a.kind == "f" and (b.kind != "f" or a.bits >= b.bits) else b
            return Value(f"({like.ctype()}({a.text}) {operator} {like.ctype()}({b.text}))", "f", like.bits)
        kind = "i" if a.kind == "i" and b.kind == "i" else "u"
        bits = max(a.bits, b.bits)
        return Value(f"static_cast<{ctype(kind, bits)}>({ctype(kind, bits)}({a.text}) {operator} {ctype(kind, bits)}({b.text}))", kind, bits)

    def power(self):
        base = self.unary()
        if self.accept("**"):
            exponent = self.power()
            if base.text not in ("2.0f", "2.0"):
                raise Unknown("a power of something else than two")
            return Value(f"power_of_two<{base.ctype()}>({exponent.text})", "f", base.bits)
        return base

    def unary(self):
        if self.accept("!"):
            return Value(f"(!({self.unary().text}))", "u", 1)
        if self.accept("~"):
            value = self.unary()
            return Value(f"static_cast<{value.ctype()}>(~{value.text})", value.kind, value.bits)
        if self.accept("-"):
            value = self.unary()
            kind = "f" if value.kind == "f" else "i"
            return Value(f"static_cast<{ctype(kind, value.bits)}>(-{value.text})", kind, value.bits)
        if self.accept("+"):
            return self.unary()
        return self.postfix(self.primary())

    def postfix(self, value):
        while True:
            if self.peek()[0] == "suffix":
                suffix = self.take()[1]
                value = self.reinterpreted(value, suffix[1], int(suffix[2:]))
            elif self.peek()[1] == "[":
                self.take("[")
                first = self.expression(ranges=False)
                if self.accept(":"):
                    value = self.slice(value, first, self.expression(ranges=False))
                else:
                    value = Value(f"(({value.text} >> {first.text}) & 1)", "u", 1)
                self.take("]")
            else:
                return value

    def slice(self, value, high, low):
        if not (high.text.isdigit() and low.text.isdigit()):
            raise Unknown("a slice between variables")
        if int(high.text) < int(low.text):
            return Value(f"reversed({value.text})", "u", value.bits)
        bits = int(high.text) - int(low.text) + 1
        kept = Value("", "u", bits).ctype()
        mask = "" if bits in (8, 16, 32, 64) else f" & {(1 << bits) - 1:#x}"
        return Value(f"static_cast<{kept}>(static_cast<{kept}>({value.text} >> {low.text}){mask})", "u", bits)

    def reinterpreted(self, value, kind, bits):
        kind = "u" if kind == "b" else kind
        if value.kind == kind and value.bits == bits:
            return value
        if value.text.startswith(("INFINITY", "-INFINITY", "static_cast<double>(-INFINITY")):
            return Value(f"{ctype(kind, bits)}({value.text})", kind, bits)
        if value.text in ("NOT_A_NUMBER", "DENORM"):
            return Value(f"{ctype(kind, bits)}({value.text})" if value.text != "DENORM" else "DENORM", kind, bits)
        if kind == "f" or value.kind == "f":
            return Value(f"bits_as<{ctype(kind, bits)}>({value.text})", kind, bits)
        if bits in (8, 16, 32, 64):
            return Value(f"static_cast<{ctype(kind, bits)}>({value.text})", kind, bits)
        return Value(f"{'sign' if kind == 'i' else 'zero'}_extended<{bits}>({value.text})", kind, bits)

    def primary(self):
        group, text = self.take()
        if text == "(":
            value = self.expression()
            self.take(")")
            return Value(f"({value.text})", value.kind, value.bits)
        if text == "{":
            return self.joined()
        if group == "sized":
            bits, number = int(text[:-1]), self.take()[1]
            if "." in number:
                return Value(f"{ctype('f', bits)}({number.rstrip('F')}f)", "f", bits)
            kind = "u" if number.endswith("U") or number.startswith("0x") else "i"
            return Value(f"{ctype(kind, bits)}({number.rstrip('U')})", kind, bits)
        if group == "cast":
            bits, kind = text.split("'")
            self.take("(")
            value = self.expression()
            self.take(")")
            return self.converted(value, "u" if kind == "B" else kind.lower(), int(bits))
        if group == "number":
            return number_of(text)
        if group == "word":
            return self.word(text)
        raise Unknown(f"{text!r} in an expression")

    def joined(self):
        parts = []
        while not self.accept("}"):
            parts.append(self.expression())
            self.accept(",")
        bits = sum(part.bits for part in parts)
        whole, text, low = ctype("u", bits), [], 0
        for part in reversed(parts):
            text.append(f"{whole}({ctype('u', part.bits)}({part.text})) << {low}")
            low += part.bits
        return Value(f"({' | '.join(text)})", "u", bits)

    def converted(self, value, kind, bits):
        if kind == "f" and value.kind != "f":
            return Value(f"bits_as<{ctype(kind, bits)}>({ctype('u', bits)}({value.text}))", "f", bits)
        return Value(f"static_cast<{ctype(kind, bits)}>({value.text})", kind, bits)

    def read(self, name, kind, bits):
        value = self.word(name)
        return self.reinterpreted(value, kind, bits) if kind else value

    def word(self, name):
        if name == "MEM":
            self.take("[")
            address = self.expression()
            self.take("]")
            suffix = self.take()[1]
            return self.loaded(address, suffix[1], int(suffix[2:]))
        if name in self.bound:
            return self.bound[name]
        if name in self.locals:
            kind, bits, size = self.locals[name]
            if not size:
                return Value(name, kind, bits)
            self.take("[")
            index = self.expression(ranges=False)
            self.take("]")
            return Value(f"{name}[{index.text}]", kind, bits)
        if name in self.lambdas and self.peek()[1] == "(":
            return self.called(name)
        if self.peek()[1] == "(":
            return self.call(name)
        if name in CONSTANTS:
            return CONSTANTS[name]
        value = self.named(name)
        if value is None:
            raise Unknown(f"the name {name}")
        return value

    def arguments(self):
        self.take("(")
        values = []
        while not self.accept(")"):
            values.append(self.expression())
            self.accept(",")
        return values

    def called(self, name):
        parameters, body = self.lambdas[name]
        values = self.arguments()
        if any(token[1] == "return" for token in body):
            raise Unknown(f"the statements of {name}")
        saved = self.tokens, self.at, self.bound
        self.tokens, self.at, self.bound = body, 0, {**self.bound, **dict(zip(parameters, values))}
        value = self.expression()
        self.tokens, self.at, self.bound = saved
        return value

    def call(self, name):
        values = self.arguments()
        texts = ", ".join(value.text for value in values)
        if name in RESULTS:
            kind, bits = RESULTS[name]
            if kind is None:
                kind, bits = values[0].kind, values[0].bits
            return Value(f"{name}({texts})", kind, bits)
        raise Unknown(f"the function {name}")


CONSTANTS = {
    "INF": Value("INFINITY", "f", 64), "NAN": Value("NOT_A_NUMBER", "f", 64), "DENORM": Value("DENORM", "f", 64),
    "UNDERFLOW_F32": Value("UNDERFLOW_F32", "f", 32), "OVERFLOW_F32": Value("OVERFLOW_F32", "f", 32),
    "UNDERFLOW_F64": Value("UNDERFLOW_F64", "f", 64), "OVERFLOW_F64": Value("OVERFLOW_F64", "f", 64),
    "WAVE64": Value("false", "u", 1),
}
# Functions of instruction.h, and what they return; None: what their first argument is.
RESULTS = {
    **{f"{a}_to_{b}": (b[0], int(b[1:])) for a in ("f16", "f32", "f64", "i32", "u32", "i16", "u16") for b in
       ("f16", "f32", "f64", "i32", "u32", "i16", "u16")},
    "isNAN": ("u", 1), "isQuietNAN": ("u", 1), "isSignalNAN": ("u", 1), "isEven": ("u", 1), "sign": ("u", 1),
    "exponent": ("i", 32), "mantissa": (None, 0), "cvtToQuietNAN": (None, 0), "abs": (None, 0), "overflowed": (None, 0), "floor": (None, 0),
    "fract": (None, 0), "trunc": (None, 0), "ceil": (None, 0), "rndne": (None, 0), "sqrt": (None, 0), "rcp": (None, 0), "rsq": (None, 0),
    "exp2": (None, 0), "log2": (None, 0), "fma": (None, 0), "ldexp": (None, 0), "sin_turns": (None, 0), "cos_turns": (None, 0),
    "signext": ("i", 64), "signext_from_bit": (None, 0), "v_min_f32": ("f", 32), "v_max_f32": ("f", 32), "v_min_f16": ("f", 16),
    "v_max_f16": ("f", 16), "v_min_num_f32": ("f", 32), "v_max_num_f32": ("f", 32), "v_min_num_f16": ("f", 16),
    "v_max_num_f16": ("f", 16), "v_min_i32": ("i", 32), "v_max_i32": ("i", 32), "v_min_u32": ("u", 32), "v_max_u32": ("u", 32),
    "v_min_i16": ("i", 16), "v_max_i16": ("i", 16), "v_min_u16": ("u", 16), "v_max_u16": ("u", 16),
    "u8_to_u32": ("u", 32), "u4_to_u32": ("u", 32), "bf16_to_f32": ("f", 32), "SAT8": ("u", 8), "pow": (None, 0),
}


def number_of(text):
    if text.startswith("0x"):
        digits = re.match(r"0x[0-9a-fA-F]+", text).group()
        bits = 64 if "L" in text[len(digits):] or int(digits, 16) >> 32 else 32
        return Value(digits + ("ull" if bits == 64 else "u"), "u", bits)
    if "." in text:
        return Value(text[:-1] + "f", "f", 32) if text.endswith("F") else Value(text, "f", 64)
    digits = re.match(r"\d+", text).group()
    suffix = text[len(digits):]
    kind, bits = ("u" if "U" in suffix else "i"), (64 if "LL" in suffix else 32)
    return Value(digits + {("u", 32): "u", ("i", 32): "", ("u", 64): "ull", ("i", 64): "ll"}[kind, bits], kind, bits)
