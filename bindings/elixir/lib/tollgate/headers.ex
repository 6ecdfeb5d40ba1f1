defmodule Tollgate.Headers do
  @moduledoc false
  # The fields that carry a client's limits, in the styles of the gate: `bindings/gate/src/headers.rs`.
  #
  # A quota is a map: `lane` as it is prepared, `capacity`, `remaining`, `full_in_ns`, `next_in_ns` and `window_ns` (or
  # nil), `denied`, `retry_after_ms` (or `:infinity`).

  @styles [:legacy, :draft10, :off]
  # The largest Integer of a Structured Field.
  @most 999_999_999_999_999

  def styles, do: @styles

  def fields(:off, _quota, _unix_ms), do: []

  def fields(:legacy, quota, unix_ms) do
    [
      {"x-ratelimit-limit", Integer.to_string(quota.capacity)},
      {"x-ratelimit-remaining", Integer.to_string(quota.remaining)} | reset(quota.full_in_ns, unix_ms)
    ]
  end

  def fields(:draft10, quota, _unix_ms) do
    name = quota.lane.quoted
    window = if window = quota.window_ns, do: parameter(";w=", max(1, seconds(window)))
    more_in = if quota.denied, do: retry_after(quota), else: quota.next_in_ns && max(1, seconds(quota.next_in_ns))
    rest = [name, parameter(";r=", min(quota.remaining, quota.capacity)), more_in && parameter(";t=", more_in)]

    [
      {"ratelimit-policy", text([name, parameter(";q=", quota.capacity), window])},
      {"ratelimit", text(rest)}
    ]
  end

  # Slots that are held come back with no time.
  defp reset(:infinity, _unix_ms), do: []

  defp reset(full_in_ns, unix_ms) do
    now = if unix_ms, do: unix_ms.(), else: System.system_time(:millisecond)
    [{"x-ratelimit-reset", Integer.to_string(div(now + div(full_in_ns + 999_999, 1_000_000) + 999, 1_000))}]
  end

  # In whole seconds, at least 1; nil if no wait helps.
  def retry_after(%{retry_after_ms: :infinity}), do: nil
  def retry_after(%{retry_after_ms: ms}), do: max(1, seconds_of_ms(ms))

  defp text(parts), do: parts |> Enum.reject(&is_nil/1) |> IO.iodata_to_binary()
  defp parameter(name, number), do: [name, Integer.to_string(min(number, @most))]
  def seconds_of_ms(ms), do: div(ms + 999, 1_000)
  defp seconds(ns), do: div(ns + 999_999_999, 1_000_000_000)

  # Puts them into the headers of a response, in one step.
  #
  # If another plug has written its limit before, a list field carries both, and a field that has room for one keeps the
  # limit with less left; that of a refusal always stands.
  def merge([], headers, _quota), do: headers
  def merge([{"ratelimit-policy", _} | _] = fields, headers, _quota), do: headers ++ fields

  def merge(fields, headers, quota) do
    case List.keyfind(headers, "x-ratelimit-remaining", 0) do
      nil -> fields ++ headers
      {_, left} -> if quota.denied or less?(quota.remaining, left), do: fields ++ without(headers), else: headers
    end
  end

  defp less?(remaining, left) do
    case Integer.parse(left) do
      {left, ""} -> remaining < left
      _ -> true
    end
  end

  defp without(headers), do: Enum.reject(headers, &match?({"x-ratelimit-" <> _, _}, &1))

  # An RFC 9651 String: visible ASCII; the bytes of other characters are percent-encoded.
  def string(name) do
    encoded =
      for <<byte <- name>>, into: "" do
        cond do
          byte in [?", ?\\] -> <<?\\, byte>>
          byte in ?\s..?~ -> <<byte>>
          true -> "%" <> Base.encode16(<<byte>>)
        end
      end

    "\"" <> encoded <> "\""
  end
end
