import pathlib
import sys
import unittest

here = pathlib.Path(__file__).parent
sys.path[:0] = [str(here.parent), str(here.parent / "src")]

from toolcell import ToolError
from {{function}}_tool import {{function}}


class Test(unittest.TestCase):
    def test_divides(self):
        self.assertEqual({{function}}.call({"dividend": 7, "divisor": 2}), "3.5")
        self.assertEqual({{function}}.call({"dividend": 7, "divisor": 2, "remainder": True}), "3 remainder 1")

    def test_refuses_to_divide_by_zero(self):
        with self.assertRaises(ToolError) as raised:
            {{function}}(7, 0)
        self.assertEqual(raised.exception.kind, "invalid_arguments")
