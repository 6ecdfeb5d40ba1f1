defmodule Tollgate.JSON do
  @moduledoc false
  # Writes and reads JSON, so that frames, bodies and files need no package. What is not UTF-8 becomes
  # `{"base64": "..."}`, as everywhere in tollgate.

  @spec encode(term) :: String.t()
  def encode(value), do: value |> value() |> IO.iodata_to_binary()

  @doc "An object from pairs whose keys are text, in their order."
  def encode_pairs(pairs) do
    IO.iodata_to_binary([
      ?{,
      Enum.map_intersperse(pairs, ?,, fn {key, value} -> [string(key), ?:, value(value)] end),
      ?}
    ])
  end

  # Pairs keep their order; of a map the keys are sorted.
  defp value([{key, _} | _] = pairs) when is_atom(key) do
    [?{, Enum.map_intersperse(pairs, ?,, fn {key, value} -> [string(Atom.to_string(key)), ?:, value(value)] end), ?}]
  end

  defp value(%{__struct__: _} = struct), do: struct |> Map.from_struct() |> value()

  defp value(%{} = map) do
    pairs = map |> Enum.map(fn {key, value} -> {to_string(key), value} end) |> Enum.sort()
    [?{, Enum.map_intersperse(pairs, ?,, fn {key, value} -> [string(key), ?:, value(value)] end), ?}]
  end

  defp value(nil), do: "null"
  # If no wait helps, no number says so.
  defp value(:infinity), do: "null"
  defp value(true), do: "true"
  defp value(false), do: "false"
  defp value(atom) when is_atom(atom), do: string(Atom.to_string(atom))
  defp value(number) when is_integer(number), do: Integer.to_string(number)
  defp value(number) when is_float(number), do: Float.to_string(number)
  defp value(list) when is_list(list), do: [?[, Enum.map_intersperse(list, ?,, &value/1), ?]]

  defp value(text) when is_binary(text) do
    if String.valid?(text), do: string(text), else: value(base64: Base.encode64(text))
  end

  defp string(text), do: [?", escape(text, []), ?"]

  defp escape("", escaped), do: Enum.reverse(escaped)
  defp escape(<<?", rest::binary>>, escaped), do: escape(rest, ["\\\"" | escaped])
  defp escape(<<?\\, rest::binary>>, escaped), do: escape(rest, ["\\\\" | escaped])

  defp escape(<<char, rest::binary>>, escaped) when char < 0x20 or char == 0x7F do
    escape(rest, [["\\u", String.pad_leading(Integer.to_string(char, 16), 4, "0")] | escaped])
  end

  defp escape(<<char::utf8, rest::binary>>, escaped), do: escape(rest, [<<char::utf8>> | escaped])

  # How deep values may lie in each other: what is read here is flat.
  @depth 32

  @doc "Reads a text that is one value: objects as maps with text for keys. `:error` for anything else."
  @spec decode(binary) :: {:ok, term} | :error
  def decode(text) do
    with {:ok, value, rest} <- decode_first(text) do
      if space(rest) == "", do: {:ok, value}, else: :error
    end
  end

  @doc "Reads the value that a text begins with, and returns what follows it."
  @spec decode_first(binary) :: {:ok, term, binary} | :error
  def decode_first(text) do
    true = String.valid?(text)
    {value, rest} = read(space(text), @depth)
    {:ok, value, rest}
  rescue
    # Anything that is not JSON matches none of the clauses below.
    _ in [MatchError, FunctionClauseError, CaseClauseError, ArgumentError] -> :error
  end

  defp read("null" <> rest, _), do: {nil, rest}
  defp read("true" <> rest, _), do: {true, rest}
  defp read("false" <> rest, _), do: {false, rest}
  defp read("\"" <> rest, _), do: text(rest, [])
  defp read("[" <> rest, depth) when depth > 0, do: list(space(rest), [], depth - 1)
  defp read("{" <> rest, depth) when depth > 0, do: object(space(rest), %{}, depth - 1)

  # Numbers of a sane length: a number with a million digits takes minutes to read.
  defp read(<<char, _::binary>> = text, _) when char in ?0..?9 or char == ?- do
    [number] = Regex.run(~r/^-?(?:0|[1-9]\d{0,29})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?(?![\d.])/, text)
    rest = binary_part(text, byte_size(number), byte_size(text) - byte_size(number))
    {number(number, number =~ ".", number =~ ~r/[eE]/), rest}
  end

  defp number(text, false, false), do: String.to_integer(text)
  defp number(text, true, _), do: String.to_float(text)
  defp number(text, false, true), do: text |> String.replace(~r/[eE]/, ".0e") |> String.to_float()

  defp list("]" <> rest, [], _), do: {[], rest}

  defp list(text, values, depth) do
    {value, rest} = read(text, depth)

    case space(rest) do
      "," <> rest -> list(space(rest), [value | values], depth)
      "]" <> rest -> {Enum.reverse([value | values]), rest}
    end
  end

  defp object("}" <> rest, fields, _) when fields == %{}, do: {fields, rest}

  defp object("\"" <> rest, fields, depth) do
    {key, rest} = text(rest, [])
    ":" <> rest = space(rest)
    {value, rest} = read(space(rest), depth)
    # Of two values nobody could say which one was meant.
    false = Map.has_key?(fields, key)
    fields = Map.put(fields, key, value)

    case space(rest) do
      "," <> rest -> object(space(rest), fields, depth)
      "}" <> rest -> {fields, rest}
    end
  end

  defp text("\"" <> rest, read), do: {read |> Enum.reverse() |> IO.iodata_to_binary(), rest}

  defp text(<<"\\u", hex::binary-size(4), rest::binary>>, read) do
    case String.to_integer(hex, 16) do
      high when high in 0xD800..0xDBFF ->
        <<"\\u", low::binary-size(4), rest::binary>> = rest
        low = String.to_integer(low, 16)
        true = low in 0xDC00..0xDFFF
        text(rest, [<<0x10000 + (high - 0xD800) * 0x400 + (low - 0xDC00)::utf8>> | read])

      code ->
        text(rest, [<<code::utf8>> | read])
    end
  end

  @escapes %{?" => "\"", ?\\ => "\\", ?/ => "/", ?b => "\b", ?f => "\f", ?n => "\n", ?r => "\r", ?t => "\t"}
  defp text(<<?\\, escaped, rest::binary>>, read) when is_map_key(@escapes, escaped) do
    text(rest, [Map.fetch!(@escapes, escaped) | read])
  end

  defp text(<<char::utf8, rest::binary>>, read) when char >= 0x20 and char != ?\\,
    do: text(rest, [<<char::utf8>> | read])

  defp space(<<char, rest::binary>>) when char in [?\s, ?\t, ?\r, ?\n], do: space(rest)
  defp space(rest), do: rest
end
