# Definitions of jq 1.8 that jaq lacks.

def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] |= $row);
def INDEX(f): INDEX(.[]; f);
def IN(s): any(s == .; .);
def IN(source; s): any(source == s; .);

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
