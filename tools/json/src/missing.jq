# Definitions of jq 1.8 that jaq lacks.

def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] |= $row);
def INDEX(f): INDEX(.[]; f);
def IN(s): any(s == .; .);
def IN(source; s): any(source == s; .);

def JOIN($index; f): [.[] | [., $index[f]]];
def JOIN($index; stream; f): stream | [., $index[f]];
def JOIN($index; stream; f; joined): stream | [., $index[f]] | joined;

def leaf_paths: paths(scalars);
def recurse_down: recurse;
def tostream:
  path(def children: (.[]? | children), .; children) as $path
  | getpath($path)
  | reduce path(.[]?) as $child ([$path, .]; [$path + $child]);
def put($path; $value):
  if $path == [] then $value
  else $path[0] as $key | $path[1:] as $rest
    | if . == null then if $key | isnumber then [] else {} end else . end
    | if isarray and $key >= length then . + [null | put($rest; $value)]
      else .[$key] = (.[$key] | put($rest; $value)) end
  end;
def fromstream(stream):
  foreach stream as $event ({value: null, complete: false};
      (if .complete then {value: null, complete: false} else . end)
    | if $event | length == 2
      then .complete = ($event[0] | length == 0) | .value = (.value | put($event[0]; $event[1]))
      else .complete = ($event[0] | length == 1) end;
      if .complete then .value else empty end);
def truncate_stream(depth; stream):
  depth as $depth | stream | select(.[0] | length > $depth) | .[0] |= .[$depth:];
def truncate_stream(stream): truncate_stream(.; stream);

def date: todate;
def dateadd($unit; $number): . + $number;
def datesub($unit; $number): . - $number;
def ascii: [.] | implode;
def have_literal_numbers: true;
def have_decnum: false;
def input_filename: null;

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

def format($name):
  if $name == "text" then @text elif $name == "json" then @json elif $name == "csv" then @csv
  elif $name == "tsv" then @tsv elif $name == "html" then @html elif $name == "uri" then @uri
  elif $name == "sh" then @sh elif $name == "base64" then @base64 elif $name == "base64d" then @base64d
  else error("\($name) is not a valid format") end;
