"""Small functions to write, change, translate, explain: text that mostly copies its prompt."""

from __future__ import annotations

from string import Template

from spec_viz.training.pen import Pen

# What a function does, and what it looks like in each language. `$f` is its name, `$xs` a list, `$x` an element, `$t`
# a total or result, `$n` a number.
ROUTINES: dict[str, dict[str, str]] = {
    "adds up all numbers of a list": {
        "Python": """def $f($xs):
    $t = 0
    for $x in $xs:
        $t += $x
    return $t""",
        "JavaScript": """function $f($xs) {
  let $t = 0;
  for (const $x of $xs) {
    $t += $x;
  }
  return $t;
}""",
        "Java": """static int $f(int[] $xs) {
    int $t = 0;
    for (int $x : $xs) {
        $t += $x;
    }
    return $t;
}""",
        "C": """int $f(const int *$xs, int length) {
    int $t = 0;
    for (int i = 0; i < length; i++) {
        $t += $xs[i];
    }
    return $t;
}""",
        "Go": """func $f($xs []int) int {
	$t := 0
	for _, $x := range $xs {
		$t += $x
	}
	return $t
}""",
    },
    "counts the numbers above $n": {
        "Python": """def $f($xs):
    $t = 0
    for $x in $xs:
        if $x > $n:
            $t += 1
    return $t""",
        "JavaScript": """function $f($xs) {
  let $t = 0;
  for (const $x of $xs) {
    if ($x > $n) {
      $t += 1;
    }
  }
  return $t;
}""",
        "Java": """static int $f(int[] $xs) {
    int $t = 0;
    for (int $x : $xs) {
        if ($x > $n) {
            $t++;
        }
    }
    return $t;
}""",
        "C": """int $f(const int *$xs, int length) {
    int $t = 0;
    for (int i = 0; i < length; i++) {
        if ($xs[i] > $n) {
            $t++;
        }
    }
    return $t;
}""",
        "Go": """func $f($xs []int) int {
	$t := 0
	for _, $x := range $xs {
		if $x > $n {
			$t++
		}
	}
	return $t
}""",
    },
    "finds the largest number of a list": {
        "Python": """def $f($xs):
    $t = $xs[0]
    for $x in $xs[1:]:
        if $x > $t:
            $t = $x
    return $t""",
        "JavaScript": """function $f($xs) {
  let $t = $xs[0];
  for (const $x of $xs) {
    if ($x > $t) {
      $t = $x;
    }
  }
  return $t;
}""",
        "Java": """static int $f(int[] $xs) {
    int $t = $xs[0];
    for (int $x : $xs) {
        if ($x > $t) {
            $t = $x;
        }
    }
    return $t;
}""",
        "C": """int $f(const int *$xs, int length) {
    int $t = $xs[0];
    for (int i = 1; i < length; i++) {
        if ($xs[i] > $t) {
            $t = $xs[i];
        }
    }
    return $t;
}""",
        "Go": """func $f($xs []int) int {
	$t := $xs[0]
	for _, $x := range $xs {
		if $x > $t {
			$t = $x
		}
	}
	return $t
}""",
    },
    "says whether $n is in a list": {
        "Python": """def $f($xs):
    for $x in $xs:
        if $x == $n:
            return True
    return False""",
        "JavaScript": """function $f($xs) {
  for (const $x of $xs) {
    if ($x === $n) {
      return true;
    }
  }
  return false;
}""",
        "Java": """static boolean $f(int[] $xs) {
    for (int $x : $xs) {
        if ($x == $n) {
            return true;
        }
    }
    return false;
}""",
        "C": """int $f(const int *$xs, int length) {
    for (int i = 0; i < length; i++) {
        if ($xs[i] == $n) {
            return 1;
        }
    }
    return 0;
}""",
        "Go": """func $f($xs []int) bool {
	for _, $x := range $xs {
		if $x == $n {
			return true
		}
	}
	return false
}""",
    },
    "multiplies every number of a list by $n": {
        "Python": """def $f($xs):
    $t = []
    for $x in $xs:
        $t.append($x * $n)
    return $t""",
        "JavaScript": """function $f($xs) {
  const $t = [];
  for (const $x of $xs) {
    $t.push($x * $n);
  }
  return $t;
}""",
        "Java": """static int[] $f(int[] $xs) {
    int[] $t = new int[$xs.length];
    for (int i = 0; i < $xs.length; i++) {
        $t[i] = $xs[i] * $n;
    }
    return $t;
}""",
        "C": """void $f(const int *$xs, int *$t, int length) {
    for (int i = 0; i < length; i++) {
        $t[i] = $xs[i] * $n;
    }
}""",
        "Go": """func $f($xs []int) []int {
	$t := []int{}
	for _, $x := range $xs {
		$t = append($t, $x*$n)
	}
	return $t
}""",
    },
    "computes the average of a list": {
        "Python": """def $f($xs):
    $t = 0
    for $x in $xs:
        $t = $t + $x
    return $t / len($xs)""",
        "JavaScript": """function $f($xs) {
  let $t = 0;
  for (const $x of $xs) {
    $t = $t + $x;
  }
  return $t / $xs.length;
}""",
        "Java": """static double $f(double[] $xs) {
    double $t = 0;
    for (double $x : $xs) {
        $t = $t + $x;
    }
    return $t / $xs.length;
}""",
        "C": """double $f(const double *$xs, int length) {
    double $t = 0;
    for (int i = 0; i < length; i++) {
        $t = $t + $xs[i];
    }
    return $t / length;
}""",
        "Go": """func $f($xs []float64) float64 {
	$t := 0.0
	for _, $x := range $xs {
		$t = $t + $x
	}
	return $t / float64(len($xs))
}""",
    },
    "multiplies the whole numbers from 1 to a given number": {
        "Python": """def $f($x):
    $t = 1
    for step in range(1, $x + 1):
        $t *= step
    return $t""",
        "JavaScript": """function $f($x) {
  let $t = 1;
  for (let step = 1; step <= $x; step++) {
    $t *= step;
  }
  return $t;
}""",
        "Java": """static long $f(int $x) {
    long $t = 1;
    for (int step = 1; step <= $x; step++) {
        $t *= step;
    }
    return $t;
}""",
        "C": """long $f(int $x) {
    long $t = 1;
    for (int step = 1; step <= $x; step++) {
        $t *= step;
    }
    return $t;
}""",
        "Go": """func $f($x int) int {
	$t := 1
	for step := 1; step <= $x; step++ {
		$t *= step
	}
	return $t
}""",
    },
    "takes $n percent off a price": {
        "Python": """def $f($x):
    $t = $x * $n / 100
    return $x - $t""",
        "JavaScript": """function $f($x) {
  const $t = $x * $n / 100;
  return $x - $t;
}""",
        "Java": """static double $f(double $x) {
    double $t = $x * $n / 100;
    return $x - $t;
}""",
        "C": """double $f(double $x) {
    double $t = $x * $n / 100;
    return $x - $t;
}""",
        "Go": """func $f($x float64) float64 {
	$t := $x * $n / 100
	return $x - $t
}""",
    },
    "keeps a number between 0 and $n": {
        "Python": """def $f($x):
    $t = $x
    if $t < 0:
        $t = 0
    if $t > $n:
        $t = $n
    return $t""",
        "JavaScript": """function $f($x) {
  let $t = $x;
  if ($t < 0) {
    $t = 0;
  }
  if ($t > $n) {
    $t = $n;
  }
  return $t;
}""",
        "Java": """static int $f(int $x) {
    int $t = $x;
    if ($t < 0) {
        $t = 0;
    }
    if ($t > $n) {
        $t = $n;
    }
    return $t;
}""",
        "C": """int $f(int $x) {
    int $t = $x;
    if ($t < 0) {
        $t = 0;
    }
    if ($t > $n) {
        $t = $n;
    }
    return $t;
}""",
        "Go": """func $f($x int) int {
	$t := $x
	if $t < 0 {
		$t = 0
	}
	if $t > $n {
		$t = $n
	}
	return $t
}""",
    },
    "counts how often each word occurs": {
        "Python": """def $f($xs):
    $t = {}
    for $x in $xs:
        $t[$x] = $t.get($x, 0) + 1
    return $t""",
        "JavaScript": """function $f($xs) {
  const $t = {};
  for (const $x of $xs) {
    $t[$x] = ($t[$x] || 0) + 1;
  }
  return $t;
}""",
        "Java": """static Map<String, Integer> $f(List<String> $xs) {
    Map<String, Integer> $t = new HashMap<>();
    for (String $x : $xs) {
        $t.merge($x, 1, Integer::sum);
    }
    return $t;
}""",
        "Go": """func $f($xs []string) map[string]int {
	$t := map[string]int{}
	for _, $x := range $xs {
		$t[$x]++
	}
	return $t
}""",
    },
    "keeps the words longer than $n letters": {
        "Python": """def $f($xs):
    $t = []
    for $x in $xs:
        if len($x) > $n:
            $t.append($x)
    return $t""",
        "JavaScript": """function $f($xs) {
  const $t = [];
  for (const $x of $xs) {
    if ($x.length > $n) {
      $t.push($x);
    }
  }
  return $t;
}""",
        "Java": """static List<String> $f(List<String> $xs) {
    List<String> $t = new ArrayList<>();
    for (String $x : $xs) {
        if ($x.length() > $n) {
            $t.add($x);
        }
    }
    return $t;
}""",
        "Go": """func $f($xs []string) []string {
	$t := []string{}
	for _, $x := range $xs {
		if len($x) > $n {
			$t = append($t, $x)
		}
	}
	return $t
}""",
    },
}

LISTS = (
    ("prices", "price"), ("scores", "score"), ("numbers", "number"), ("values", "value"), ("ages", "age"),
    ("weights", "weight"), ("readings", "reading"), ("amounts", "amount"), ("lengths_cm", "length_cm"),
    ("marks", "mark"), ("orders", "order"), ("samples", "sample"), ("counts", "count"), ("levels", "level"),
)  # fmt: skip
WORD_LISTS = (("words", "word"), ("names", "name"), ("cities", "city"), ("tags", "tag"), ("titles", "title"))
RESULTS = ("total", "result", "answer", "found", "outcome", "output", "current", "summary", "kept", "final_value")
NAMES = (
    "compute", "process", "check", "evaluate", "run_step", "handle", "work_out", "apply", "calculate", "inspect",
    "review", "measure", "collect", "prepare",
)  # fmt: skip
NEW_NAMES = (
    "accumulator", "buffer_value", "running_value", "partial", "tally", "memo", "sum_so_far", "outcome_value", "store",
    "return_value", "tmp", "acc", "my_result", "state",
)  # fmt: skip
NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50)

CHANGES = (
    "Rename the variable `$t` to `$new` in this function and return the whole function.",
    "Rename the function `$f` to `$name` and show the complete code.",
    "Add a short comment above every line of this function.",
    "Add a comment at the top that says what this function does. Keep the code as it is.",
    "Explain what this function does, line by line.",
    "What does this function return? Explain it in two sentences.",
    "Change this function so that it also prints `$t` before it returns. Return the complete function.",
    "Write two examples of calling this function, with the results.",
    "Translate this function from $language to $other.",
    "Write a test for this function in $language.",
    "Rewrite this function with better variable names and return the whole function.",
    "Rename `$x` to `item` and `$t` to `$new` in this code.",
    "Make this function shorter if you can, and show the new code.",
    "Which mistakes could a caller of this function make? Name two and show the code with checks.",
)
FROM_SCRATCH = (
    "Write a $language function `$name` that $does. Add a comment to each line.",
    "Write a function in $language that $does. Call it `$name`.",
    "Show me how to write a $language function that $does, and how to call it.",
    "I am learning $language. Write a simple function `$name` that $does and explain it.",
    "Write the same function in $language and $other: it $does.",
)


def write(pen: Pen) -> str:
    """One prompt about a small function."""
    does = pen.pick(tuple(ROUTINES))
    forms = ROUTINES[does]
    language, other = pen.some(tuple(forms), 2)
    xs, x = pen.pick(WORD_LISTS if "word" in does else LISTS)
    new = pen.pick(NEW_NAMES)
    names = pen.some(NAMES, 2)
    words = {
        "f": f"{names[0]}_{xs}",
        "name": f"{names[1]}_{xs}",
        "xs": xs,
        "x": x,
        "t": pen.pick(RESULTS),
        "n": str(pen.pick(NUMBERS)),
        "new": new,
        "language": language,
        "other": other,
    }
    if language in ("JavaScript", "Java", "Go"):
        words = {key: word if key in ("language", "other") else camel(word) for key, word in words.items()}
    words["does"] = Template(does).substitute(words)
    if pen.chance(0.2):
        return Template(pen.pick(FROM_SCRATCH)).substitute(words)
    task = Template(pen.pick(CHANGES)).substitute(words)
    return f"{task}\n\n```{language.lower()}\n{Template(forms[language]).substitute(words)}\n```"


def camel(name: str) -> str:
    """A name as JavaScript, Java and Go write it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
