# Definitions of jq 1.8 that jaq lacks.

def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] |= $row);
def INDEX(f): INDEX(.[]; f);
def IN(s): any(s == .; .);
def IN(source; s): any(source == s; .);

def halt_error($exit_code): keep_message | halt($exit_code);
def halt_error: halt_error(5);

def toarray: if isarray then . else [.] end;
def starts($x): isstring and ($x | isstring) and startswith($x);
def ends($x): isstring and ($x | isstring) and endswith($x);
def ltrimstr($x): if starts($x) then .[($x | length):] else . end;
def rtrimstr($x): if ends($x) then .[:length - ($x | length)] else . end;
def trimstr($x): ltrimstr($x) | rtrimstr($x);

def unformatted($format): error("\(type) cannot be formatted as \($format), only an array of scalars can");
def @csv:
  if isarray then map(
      if isstring then "\"" + gsub("\""; "\"\"") + "\""
    elif . == null then ""
    elif isnumber or isboolean then tostring
    else unformatted("CSV") end
  ) | join(",") else unformatted("CSV") end;
def @tsv:
  if isarray then map(
      if isstring then gsub("\\\\"; "\\\\") | gsub("\t"; "\\t") | gsub("\n"; "\\n") | gsub("\r"; "\\r")
    elif . == null then ""
    elif isnumber or isboolean then tostring
    else unformatted("TSV") end
  ) | join("\t") else unformatted("TSV") end;
