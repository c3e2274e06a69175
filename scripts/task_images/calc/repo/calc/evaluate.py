"""A recursive descent evaluator for +, -, *, / and parentheses."""

import re

TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[-+*/()])")


class CalcError(ValueError):
    """The expression cannot be evaluated."""


def tokenize(text):
    """Split `text` into numbers and operators."""
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise CalcError(f"unexpected {text[position]!r} at {position}")
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def evaluate(text):
    """The value of `text`."""
    tokens = tokenize(text)
    value = _sum(tokens)
    if tokens:
        raise CalcError(f"unexpected {tokens[0]!r}")
    return value


def _sum(tokens):
    left = _product(tokens)
    if tokens and tokens[0] in "+-":
        operator = tokens.pop(0)
        right = _sum(tokens)
        return left + right if operator == "+" else left - right
    return left


def _product(tokens):
    left = _atom(tokens)
    if tokens and tokens[0] in "*/":
        operator = tokens.pop(0)
        right = _product(tokens)
        if operator == "/" and right == 0:
            raise CalcError("division by zero")
        return left * right if operator == "*" else left / right
    return left


def _atom(tokens):
    if not tokens:
        raise CalcError("unexpected end")
    token = tokens.pop(0)
    if token == "-":
        return -_atom(tokens)
    if token == "(":
        value = _sum(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise CalcError("missing ')'")
        return value
    if token in "+*/)":
        raise CalcError(f"unexpected {token!r}")
    return float(token) if "." in token else int(token)
