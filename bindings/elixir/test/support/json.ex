defmodule Tollgate.TestJSON do
  @moduledoc "Reads JSON: for the vectors, and to see what `Tollgate.JSON` wrote. Raises on anything that is not JSON."

  def decode!(text) when is_binary(text) do
    true = String.valid?(text)
    {value, rest} = value(space(text))
    "" = space(rest)
    value
  end

  defp value("null" <> rest), do: {nil, rest}
  defp value("true" <> rest), do: {true, rest}
  defp value("false" <> rest), do: {false, rest}
  defp value("\"" <> rest), do: string(rest, [])
  defp value("[" <> rest), do: list(space(rest), [])
  defp value("{" <> rest), do: object(space(rest), %{})

  defp value(text) do
    [number] = Regex.run(~r/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/, text)
    rest = binary_part(text, byte_size(number), byte_size(text) - byte_size(number))
    {if(number =~ ~r/[.eE]/, do: String.to_float(number), else: String.to_integer(number)), rest}
  end

  defp list("]" <> rest, []), do: {[], rest}

  defp list(text, values) do
    {value, rest} = value(text)

    case space(rest) do
      "," <> rest -> list(space(rest), [value | values])
      "]" <> rest -> {Enum.reverse([value | values]), rest}
    end
  end

  defp object("}" <> rest, fields) when fields == %{}, do: {fields, rest}

  defp object("\"" <> rest, fields) do
    {key, rest} = string(rest, [])
    ":" <> rest = space(rest)
    {value, rest} = value(space(rest))
    false = Map.has_key?(fields, key)
    fields = Map.put(fields, key, value)

    case space(rest) do
      "," <> rest -> object(space(rest), fields)
      "}" <> rest -> {fields, rest}
    end
  end

  defp string("\"" <> rest, read), do: {read |> Enum.reverse() |> IO.iodata_to_binary(), rest}

  defp string("\\u" <> <<hex::binary-size(4), rest::binary>>, read) do
    case String.to_integer(hex, 16) do
      high when high in 0xD800..0xDBFF ->
        "\\u" <> <<low::binary-size(4), rest::binary>> = rest
        string(rest, [<<0x10000 + (high - 0xD800) * 0x400 + (String.to_integer(low, 16) - 0xDC00)::utf8>> | read])

      code ->
        string(rest, [<<code::utf8>> | read])
    end
  end

  @escapes %{?" => "\"", ?\\ => "\\", ?/ => "/", ?b => "\b", ?f => "\f", ?n => "\n", ?r => "\r", ?t => "\t"}
  defp string(<<?\\, escaped, rest::binary>>, read), do: string(rest, [Map.fetch!(@escapes, escaped) | read])
  defp string(<<char::utf8, rest::binary>>, read) when char >= 0x20, do: string(rest, [<<char::utf8>> | read])

  defp space(<<char, rest::binary>>) when char in ~c" \t\r\n", do: space(rest)
  defp space(rest), do: rest
end
