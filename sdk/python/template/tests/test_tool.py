import pathlib
import sys
import unittest

here = pathlib.Path(__file__).parent
sys.path[:0] = [str(here.parent), str(here.parent / "src")]

import {{function}}_tool as module
from toolcell import ToolError

divide = module.{{function}}


class Test(unittest.TestCase):
    def test_divides(self) -> None:
        whole = {"dividend": 7, "divisor": 2, "remainder": True}
        self.assertEqual(divide.call({"dividend": 7, "divisor": 2}), "3.5")
        self.assertEqual(divide.call(whole), "3 remainder 1")

    def test_refuses_to_divide_by_zero(self) -> None:
        with self.assertRaises(ToolError) as raised:
            divide(7, 0)
        self.assertEqual(raised.exception.kind, "invalid_arguments")
