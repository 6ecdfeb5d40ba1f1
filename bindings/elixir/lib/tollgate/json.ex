defmodule Tollgate.JSON do
  @moduledoc false
  # Writes JSON, so that frames and bodies need no package. What is not UTF-8
  # becomes `{"base64": "..."}`, as everywhere in tollgate.

  @spec encode(term) :: String.t()
  def encode(value), do: value |> value() |> IO.iodata_to_binary()

  # Pairs keep their order.
  defp value([{key, _} | _] = pairs) when is_atom(key) do
    [?{, Enum.map_intersperse(pairs, ?,, fn {key, value} -> [string(Atom.to_string(key)), ?:, value(value)] end), ?}]
  end

  defp value(nil), do: "null"
  # If no wait helps, no number says so.
  defp value(:infinity), do: "null"
  defp value(true), do: "true"
  defp value(false), do: "false"
  defp value(atom) when is_atom(atom), do: string(Atom.to_string(atom))
  defp value(number) when is_integer(number), do: Integer.to_string(number)
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
end
