defmodule Tollgate.Redis do
  @moduledoc """
  The option `redis:` of an instance: limits that machines share through one Redis or Valkey, the *store*.

      {Tollgate,
       name: MyApp.Limiter,
       policy: policy,
       redis: [url: "rediss://10.0.0.5", secret: fn -> System.fetch_env!("TOLLGATE_SECRET") end, nodes: 3]}

  A check never waits for the store, and sends nothing: it spends credit that the store was debited for, or a few tokens
  in advance, or it denies by what the store last said. A thread of the library, the engine, settles with the store; no
  scheduler ever waits for it. `docs/machines.md` says what all machines together admit at most, and what happens when
  the store is lost: checks go on.

  Where the store is, one of these:

    * `:url` - `"redis://host:port"`, `"rediss://..."` for TLS, or `"redis+unix:///path"`;
    * `:sentinels` with `:master` - the URLs of sentinels, and the name under which they know the master;
    * `:cluster` - the URLs of some servers of a Redis Cluster.

  And:

    * `:secret` - the same on every machine: 16 bytes or more, random. The store knows agents by hashes with it.
      Required;
    * `:nodes` - how many machines there are at least. More are counted as they come; a machine that starts without the
      store needs the usual number for its share. Default: 1;
    * `:slack` - how much of a lane's capacity all machines may hold in credit and owe in advance, in percent: 1 to 100.
      More of it lets more checks be answered without the store, and lets more pass in any window. Default: 10;
    * `:when_lost` - what a machine does while the store does not answer: `:share` (the default: the limit divided by
      the number of machines), `:closed`, `:open` or `:alone` (the whole limit);
    * `:lanes` - lanes that differ: `[{"http/login", exact: true, when_lost: :closed, slack: 5}]`. An `exact:` lane
      spends nothing in advance, so that a machine without credit denies with a short wait, until the store has
      answered;
    * `:except` - lanes that each machine has for itself. Lanes that are not buckets have to be named here;
    * `:user`, `:password`, and `:sentinel_user`, `:sentinel_password` - who this machine is to the store;
    * `:tls` - for `rediss://`, as PEM: `[ca: pem, certificate: pem, key: pem]`. Default: what the system believes;
    * `:timeout` - how many milliseconds an answer may take before the store counts as lost: 50 to 1,000. Default: 200.

  A lane is `{channel, tier}` or its name. A value that is secret may be a function that returns it; whatever it is, no
  report of a supervisor and no error shows it. `Tollgate.Observe.engine/1` says how the engine gets on, and
  `Tollgate.verdict/4` where an answer came from.

  A lane that is shared cannot be reserved. What `Tollgate.Control` decides follows to all machines; conduct and held
  slots stay with each machine. When the
  instance is stopped in order it gives back the credit that it did not spend; when its owner crashes, checks and the
  engine go on.
  """

  alias Tollgate.Policy

  @known ~w(url sentinels master cluster secret nodes slack when_lost lanes except user password)a ++
           ~w(sentinel_user sentinel_password tls timeout)a
  @of_lane ~w(exact slack when_lost)a

  @doc false
  # Nothing of the option is shown by what inspects the options: a supervisor's report, say.
  def hide(options) do
    case Keyword.keyword?(options) && Keyword.get(options, :redis) do
      given when is_list(given) -> Keyword.put(options, :redis, fn -> given end)
      _ -> options
    end
  end

  @doc false
  # As the NIF takes it.
  def native(nil), do: nil

  def native(given) do
    given = if is_function(given, 0), do: given.(), else: given
    unless Keyword.keyword?(given), do: raise(ArgumentError, "redis: has to be a keyword list: see Tollgate.Redis")
    known(Keyword.keys(given), @known, "redis:")
    {servers, urls} = servers(given)
    if given[:master] && !given[:sentinels], do: raise(ArgumentError, "master: of redis: goes with sentinels:")
    tls = given[:tls] || []
    unless Keyword.keyword?(tls), do: raise(ArgumentError, "tls: of redis: has to be a keyword list")
    known(Keyword.keys(tls), [:ca, :certificate, :key], "tls: of redis:")
    unless given[:secret], do: raise(ArgumentError, "redis: needs a secret:, the same on every machine")

    given
    |> Keyword.take(~w(master user sentinel_user nodes slack when_lost timeout)a)
    |> Enum.concat(for key <- ~w(secret password sentinel_password)a, do: {key, value(given[key], key)})
    |> Enum.concat(for {key, pem} <- tls, do: {key, value(pem, key)})
    |> Map.new()
    |> Map.merge(%{servers: servers, urls: urls, lanes: lanes(given)})
  end

  # Their kind is numbered as in the NIF.
  defp servers(given) do
    case Keyword.take(given, [:url, :sentinels, :cluster]) do
      [url: url] -> {1, value(url, :url)}
      [sentinels: [_ | _] = urls] -> {2, Enum.map_join(urls, " ", &value(&1, :sentinels))}
      [cluster: [_ | _] = urls] -> {3, Enum.map_join(urls, " ", &value(&1, :cluster))}
      _ -> raise ArgumentError, "redis: needs a url:, or a list of sentinels: and a master:, or a list in cluster:"
    end
  end

  # What is wrong with a value is not said with the value: it may be a password.
  defp value(nil, _key), do: nil
  defp value(text, _key) when is_binary(text), do: text
  defp value(function, key) when is_function(function, 0), do: function.() |> value(key)
  defp value(_, key), do: raise(ArgumentError, "#{key}: of redis: has to be a text, or a function that returns one")

  defp lanes(given) do
    own = for lane <- list(given, :except), do: %{name: name(lane), own: true}

    shared =
      for lane <- list(given, :lanes) do
        case lane do
          {lane, [_ | _] = options} ->
            unless Keyword.keyword?(options), do: raise(ArgumentError, "lanes: of redis: are {lane, options}")
            known(Keyword.keys(options), @of_lane, "a lane of redis:")
            exact = Keyword.get(options, :exact, false)
            unless is_boolean(exact), do: raise(ArgumentError, "exact: is true or false, got: #{inspect(exact)}")
            options |> Map.new() |> Map.put(:name, name(lane))

          other ->
            raise ArgumentError, "lanes: of redis: are {lane, exact: true}, for one, got: #{inspect(other)}"
        end
      end

    own ++ shared
  end

  defp list(given, key) do
    case given[key] || [] do
      list when is_list(list) -> list
      other -> raise ArgumentError, "#{key}: of redis: has to be a list of lanes, got: #{inspect(other)}"
    end
  end

  defp name(name) when is_binary(name), do: name
  defp name({channel, tier} = pair) when is_atom(channel) and is_atom(tier), do: Policy.name(pair)
  defp name(other), do: raise(ArgumentError, "a lane is {channel, tier} or its name, got: #{inspect(other)}")

  defp known(keys, known, what) do
    if keys -- known != [], do: raise(ArgumentError, "#{what} knows #{inspect(known)}, got: #{inspect(keys -- known)}")
    if keys != Enum.uniq(keys), do: raise(ArgumentError, "#{what} has an option twice: #{inspect(keys)}")
  end
end
