defmodule Tollgate.Network do
  @moduledoc false
  # Networks of addresses: `"192.0.2.0/24"`, `"2001:db8::/32"`, or a single address.

  # As `{version, bits, prefix}`. Raises ArgumentError for anything else.
  def parse(text) when is_binary(text) do
    {address, bits} =
      case String.split(text, "/") do
        [address] -> {address, nil}
        [address, bits] -> {address, Integer.parse(bits)}
        _ -> wrong(text)
      end

    with {:ok, parsed} <- :inet.parse_strict_address(String.to_charlist(address)),
         {version, number} = number(parsed),
         width = width(version),
         bits when bits >= 0 and bits <= width <- length_of(bits, width),
         host = Bitwise.band(number, Bitwise.bsl(1, width - bits) - 1),
         0 <- host do
      {version, bits, Bitwise.bsr(number, width - bits)}
    else
      _ -> wrong(text)
    end
  end

  def parse(other), do: wrong(other)

  defp length_of(nil, width), do: width
  defp length_of({bits, ""}, _width), do: bits
  defp length_of(_, _), do: -1

  def member?(_networks = [], _address), do: false

  def member?(networks, address) when tuple_size(address) in [4, 8] do
    {version, number} = number(address)
    width = width(version)
    Enum.any?(networks, fn {of, bits, prefix} -> of == version and Bitwise.bsr(number, width - bits) == prefix end)
  end

  def member?(_networks, _no_address), do: false

  defp width(4), do: 32
  defp width(6), do: 128

  defp number({a, b, c, d}), do: {4, :binary.decode_unsigned(<<a, b, c, d>>)}
  defp number({0, 0, 0, 0, 0, 0xFFFF, high, low}), do: {4, :binary.decode_unsigned(<<high::16, low::16>>)}

  defp number(v6), do: {6, :binary.decode_unsigned(for(part <- Tuple.to_list(v6), into: "", do: <<part::16>>))}

  defp wrong(given) do
    raise ArgumentError,
          "a network is such as \"192.0.2.0/24\" or \"2001:db8::/32\", with no bits beyond it, got: #{inspect(given)}"
  end
end
