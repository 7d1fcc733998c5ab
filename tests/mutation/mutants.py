# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Makes mutants of a C++ source: small changes that its tests should notice.

It works on tokens and relies on how clang-format lays out code: an operator
with a space on both sides is a binary one, so `a < b` is a comparison and
`vector<int>` is none. Some mutants do not compile; the compiler sorts them out.
"""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple


class Mutant(NamedTuple):
    """A change of source[begin:end]."""
    kind: str
    line: int
    begin: int
    end: int
    replacement: str

    def apply(self, source: str) -> str:
        return source[:self.begin] + self.replacement + source[self.end:]

    def describe(self, source: str) -> str:
        old = " ".join(source[self.begin:self.end].split())
        new = " ".join(self.replacement.split()) or "nothing"
        column = self.begin - source.rfind("\n", 0, self.begin)
        return f"{self.line}:{column}: {self.kind}: {old} -> {new}"


class Token(NamedTuple):
    kind: str
    text: str
    begin: int
    end: int


_TOKEN = re.compile(r"""
    (?P<blank>//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<string>R"(?P<mark>[^(\n]*)\(.*?\)(?P=mark)"
              |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
  | (?P<number>\d(?:[eE][+-]?\d|'\d|[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<operator><<=|>>=|[-+*/%&|^=<>!]=|&&|\|\||<<|>>|\+\+|--|->|::|[^\s\w])
  """, re.X | re.S | re.M)

_BINARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
           "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/", "/": "*",
           "%": "/", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "&&", "||")
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=")
_STEPS = ("++", "--")
_WORDS = {"true": "false", "false": "true", "min": "max", "max": "min"}
# The arguments of such functions are only for people.
_MESSAGE = re.compile(r"\w+Error$")
# The beginnings of statements that change no behaviour.
_IGNORED = re.compile(r"(V|P|D)?LOG(_\w+)?$|D?CHECK(_\w+)?$|ABSL_\w+$|"
                      "(static_assert|using|typedef|namespace|friend)$")
_NO_CALLEES = ("reserve", "shrink_to_fit", "IgnoreError")
_SYMMETRIC = ("min", "max", "swap", "hypot")
_KEYWORDS = ("return", "delete", "throw", "new", "else", "goto", "case", "if",
             "for", "while", "switch", "sizeof", "typename", "class", "struct",
             "const", "break", "continue", "operator", "co_return")
_DECLARATION = re.compile(
    r"((?:\w+::)*[A-Za-z_]\w*(?:<[^;(){}=]*>)?)[&*]*\s+([a-z]\w*)"
    r"(?=\s*[,;)={])")


def _declared_types(text: str) -> Dict[str, str]:
    """Returns the types of the variables that have one type in `text`."""
    types: Dict[str, set] = {}
    for kind, name in _DECLARATION.findall(text):
        if kind not in _KEYWORDS:
            types.setdefault(name, set()).add(kind)
    return {name: kinds.pop() for name, kinds in types.items()
            if len(kinds) == 1}


class _Source:

    def __init__(self, source: str, declarations: str):
        self.source = source
        self.types = _declared_types(source + declarations)
        self.tokens: List[Token] = []
        for match in _TOKEN.finditer(source):
            kind = "string" if match["string"] else match.lastgroup
            if kind != "blank":
                self.tokens.append(Token(kind, match[0], *match.span()))
        # An empty token at the end spares most checks of bounds.
        end = len(source)
        self.tokens.append(Token("end", "", end, end))
        self.text = [token.text for token in self.tokens]
        self.close: Dict[int, int] = {}
        opened = []
        for i, text in enumerate(self.text):
            if text in ("(", "[", "{"):
                opened.append(i)
            elif text in (")", "]", "}") and opened:
                self.close[opened.pop()] = i

    def mutants(self) -> Iterator[Mutant]:
        quiet, headers = set(), set()
        for i, text in enumerate(self.text[:-1]):
            if _IGNORED.match(text) and self.starts_statement(i):
                quiet.update(range(i, self.find(i, (";", "{", "}"))))
            if self.text[i + 1] == "(":
                inside = range(i + 2, self.close.get(i + 1, i))
                if _MESSAGE.match(text):
                    quiet.update(inside)
                if text == "for":
                    headers.update(inside)
            if i in quiet:
                continue
            # A loop that ends elsewhere mostly crashes or never ends.
            if i not in headers:
                yield from self.operator(i)
            yield from self.constant(i)
            yield from self.condition(i)
            yield from self.swapped(i)
            yield from self.status(i)
            if self.starts_statement(i):
                yield from self.dropped(i)

    def change(self, kind: str, first: int, last: int,
               replacement: str) -> Mutant:
        """Returns the mutant that replaces the tokens first to last."""
        begin = self.tokens[first].begin
        return Mutant(kind, self.source.count("\n", 0, begin) + 1, begin,
                      self.tokens[last].end, replacement)

    def code(self, first: int, last: int) -> str:
        return self.source[self.tokens[first].begin:self.tokens[last].end]

    def find(self, i: int, texts: Tuple[str, ...]) -> int:
        """Returns the next place from i of one of `texts`; skips brackets."""
        while i < len(self.text) - 1 and self.text[i] not in texts:
            i = self.close.get(i, i) + 1
        return i

    def starts_statement(self, i: int) -> bool:
        if i == 0 or self.text[i - 1] in (";", "{", "}", "else"):
            return True
        return any(self.close.get(k + 1) == i - 1
                   for k in range(max(0, i - 60), i - 1)
                   if self.text[k] in ("if", "for", "while"))

    def operator(self, i: int) -> Iterator[Mutant]:
        token = self.tokens[i]
        around = self.source[token.begin - 1] + self.source[token.end]
        beside = (self.tokens[i - 1].kind, self.tokens[i + 1].kind)
        if (token.text in _BINARY and around.isspace()
                and "string" not in beside):
            compares = token.text in _COMPARISONS
            yield self.change("comparison" if compares else "arithmetic", i, i,
                              _BINARY[token.text])

    def constant(self, i: int) -> Iterator[Mutant]:
        token = self.tokens[i]
        before, after = self.text[i - 1], self.text[i + 1]
        if token.text in ("min", "max"):
            if before == "::" and after in ("(", "<"):
                yield self.change("arithmetic", i, i, _WORDS[token.text])
        elif token.text in _WORDS:
            yield self.change("constant", i, i, _WORDS[token.text])
        elif token.kind == "number" and before != "<" and after != ">":
            # A pure virtual function is `= 0` after its parameters.
            pure = before == "=" and self.text[i - 2] in (")", "const")
            match = re.match(r"(\d+)((?:\.\d*)?f?|[uUlL]*)$",
                             token.text.replace("'", ""))
            if match and not pure:
                yield self.change("constant", i, i,
                                  str(int(match[1]) + 1) + match[2])

    def condition(self, i: int) -> Iterator[Mutant]:
        if self.text[i] not in ("if", "while") or self.text[i + 1] != "(":
            return
        first, last = i + 2, self.close.get(i + 1, i + 1) - 1
        split = self.find(first, (";", ")"))
        if self.text[split] == ";":
            first = split + 1
        texts = set(self.text[first:last + 1])
        # A declaration is no condition. Negating a lone == only makes it !=.
        if "=" in texts or texts & {"==", "!="} and not texts & {"&&", "||"}:
            return
        if last > first:
            yield self.change("negated condition", first, last,
                              f"!({self.code(first, last)})")

    def swapped(self, i: int) -> Iterator[Mutant]:
        """Swaps neighbours that are both numbers, or names of one type."""
        if self.text[i + 1] != "(" or self.text[i] in _SYMMETRIC:
            return
        for k in range(i + 2, self.close.get(i + 1, i) - 2):
            left, comma, right, after = self.tokens[k:k + 4]
            kinds = [token.kind if token.kind == "number"
                     else self.types.get(token.text) for token in (left, right)]
            if (comma.text == "," and self.text[k - 1] in ("(", ",")
                    and after.text in (")", ",") and left.text != right.text
                    and kinds[0] and kinds[0] == kinds[1]):
                yield self.change("swapped arguments", k, k + 2,
                                  f"{right.text}, {left.text}")

    def status(self, i: int) -> Iterator[Mutant]:
        if self.text[i] == "RETURN_IF_ERROR" and self.text[i + 1] == "(":
            last = self.close.get(i + 1, i + 1)
            yield self.change("ignored error", i, last,
                              f"({self.code(i + 2, last - 1)}).IgnoreError()")
        if self.text[i] == "return":
            call = self.find(i, (";", "}")) - 1
            first = i + 1
            while self.text[first] in ("absl", "::"):
                first += 1
            if (_MESSAGE.match(self.text[first])
                    and self.close.get(first + 1) == call):
                yield self.change("ignored error", i + 1, call,
                                  "absl::OkStatus()")

    def chain(self, i: int) -> Tuple[int, Optional[str]]:
        """Skips an expression like a.b(c)->d[e]. Returns the token after it,
        and the callee if it ends with a call."""
        callee = None
        while self.tokens[i].kind == "name":
            name, i, callee = self.text[i], i + 1, None
            while self.text[i] in ("(", "["):
                callee = name if self.text[i] == "(" else None
                i = self.close.get(i, i) + 1
            if self.text[i] not in (".", "->", "::"):
                break
            i += 1
        return i, callee

    def dropped(self, i: int) -> Iterator[Mutant]:
        first = i + 1 if self.text[i] in (*_STEPS, "*") else i
        end, callee = self.chain(first)
        if (end == first or self.text[first] in _KEYWORDS
                or self.text[first].isupper()):
            return
        kind = "dropped assignment"
        if self.text[end] in _ASSIGNMENTS:
            end = self.find(end, (";", ",", "}"))
        elif self.text[end] in _STEPS:
            end += 1
        elif callee and callee not in _NO_CALLEES:
            kind = "dropped call"
        elif self.text[i] not in _STEPS:
            return
        if self.text[end] == ";":
            yield self.change(kind, i, end - 1, "")


def mutants_of(source: str, declarations: str = "") -> List[Mutant]:
    """Returns the mutants of a source, in the order of their places.

    Args:
      source: C++, laid out by clang-format.
      declarations: text that declares variables, such as the source's header.
        Only arguments whose types are known and the same are swapped.
    """
    found = _Source(source, declarations).mutants()
    return sorted(found, key=lambda mutant: mutant.begin)
