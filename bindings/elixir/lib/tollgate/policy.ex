defmodule Tollgate.Policy do
  @moduledoc """
  What is limited, and to what: the option `policy:` of an instance.

    * `:hub`, `:platform`, `:adr`, `:citizen` or `:standard`: a ready-made one;
    * `{:toml, text}`: a policy file's text;
    * a keyword list:

          [
            lanes: [{"api/read", "100/minute burst 150"}, {"api/write", "20/minute"}],
            warn_below_percent: 20
          ]

  A lane is named `channel/tier`; `Tollgate.check/3` takes both as atoms. A lane without a slash has the channel `nil`.
  A limit is a text such as `"10/second burst 20"`, `"5 per 5 minutes"` or `"deny"`.
  """

  @type limit :: String.t()
  @type t :: atom | {:toml, String.t()} | keyword

  @hub for channel <- ["ws", "http"],
           {tier, limit} <- [{"light", "120/minute"}, {"normal", "60/minute"}, {"heavy", "10/minute"}],
           do: {:lane, channel <> "/" <> tier, limit}

  @doc false
  # The lines that c_src/policy.c reads.
  def lines(:hub), do: @hub

  def lines(options) when is_list(options) do
    Enum.flat_map(options, fn
      {:lanes, lanes} ->
        Enum.map(lanes, &lane/1)

      {:warn_below_percent, percent} when is_integer(percent) ->
        [{:warn_below_percent, percent}]

      other ->
        raise ArgumentError, "a policy has lanes: and warn_below_percent:, got: #{inspect(other)}"
    end)
  end

  def lines(other), do: raise(ArgumentError, "a policy is :hub or a keyword list, got: #{inspect(other)}")

  defp lane({name, limit}) when is_binary(limit), do: {:lane, to_string(name), limit}

  defp lane(other),
    do: raise(ArgumentError, "a lane is a pair of its name and the text of its limit, got: #{inspect(other)}")

  @doc false
  # How a lane is called in Elixir. A policy has at most 62 lanes, and only an
  # operator names them, so the atoms are few.
  def pair(name) do
    case :binary.matches(name, "/") do
      [] ->
        {nil, String.to_atom(name)}

      slashes ->
        {at, 1} = List.last(slashes)
        <<channel::binary-size(at), ?/, tier::binary>> = name
        {String.to_atom(channel), String.to_atom(tier)}
    end
  end
end
