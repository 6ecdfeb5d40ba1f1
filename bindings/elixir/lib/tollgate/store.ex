defmodule Tollgate.Store do
  @moduledoc false
  # What survives a restart, in two files:
  #
  #   * assignments, in a file of the limiter itself, the same that the server and the other languages use: JSON, one
  #     agent a line, locked by who keeps it, all or nothing;
  #   * beside it, `NAME.policy.toml`: the policy that was put in force while the instance ran, until the options of the
  #     instance have another one.
  #
  # What the present policy does not know, such as the override of a lane that was removed, goes to `NAME.aside`.

  require Logger

  alias Tollgate.{JSON, Native, Policy}

  @tries 250
  @wait_ms 20

  def check(nil), do: :ok
  def check(path) when is_binary(path), do: :ok
  def check(other), do: raise(ArgumentError, "store has to be the path of a file, or nil, got: #{inspect(other)}")

  @doc "Puts in force what the files have, and keeps all later changes there. Raises if that is not possible."
  def keep(_reference, %{store: nil}), do: :ok

  def keep(reference, %{store: path} = options) do
    case File.mkdir_p(Path.dirname(path)) do
      :ok -> :ok
      {:error, reason} -> raise ArgumentError, "the folder of the store #{path}: #{:file.format_error(reason)}"
    end

    policy(reference, options)
    assignments(reference, path, @tries)
  end

  # The limiter of an instance that was stopped a moment ago gives its file up when its memory is collected, so this may
  # have to wait for it. It ends after five seconds.
  defp assignments(reference, path, tries) do
    case Native.keep_assignments_in(reference, path) do
      :ok ->
        :ok

      {:error, {reason, _}} when reason in [:unknown_lane, :unknown_plan, :bad_limit] and tries > 0 ->
        set_aside(reference, path)
        # Once: what is left is known.
        assignments(reference, path, 0)

      {:error, {_reason, message}} ->
        if tries == 0 or not (message =~ "is locked by"), do: raise(ArgumentError, "the store #{path}: #{message}")
        Process.sleep(@wait_ms)
        assignments(reference, path, tries - 1)
    end
  end

  # --- What the policy does not know.

  defp set_aside(reference, path) do
    agents = for {agent, fields} <- read(path), do: {agent, fields, refused(reference, agent, fields)}
    refused = for {_, _, [_ | _]} = agent <- agents, do: agent
    known = for {agent, fields, refused} <- agents, do: {agent, without(fields, refused)}
    lines = for {agent, fields, refused} <- refused, do: [line(agent, only(fields, refused)), ?\n]
    File.write!(path <> ".aside", lines, [:append, :sync])
    replace!(path, document(known))

    Logger.warning(
      "the policy does not have all that the store #{path} names; set aside in #{path}.aside, and not in force: " <>
        Enum.map_join(refused, "; ", fn {agent, _, what} ->
          "#{inspect(agent)}: #{Enum.map_join(what, ", ", &name/1)}"
        end)
    )
  end

  # The agents of the file, in order; a change that follows the document replaces what it says.
  defp read(path) do
    text = File.read!(path)

    with {:ok, %{"agents" => agents}, rest} <- JSON.decode_first(text) do
      # The limiter has read the file already, so a line that is invalid is the last, cut short by a crash.
      changes =
        for line <- String.split(rest, "\n", trim: true),
            {:ok, %{"agents" => agents}} <- [JSON.decode(line)],
            do: agents

      all = for fields <- Enum.concat([agents | changes]), do: {fields["agent"], Map.delete(fields, "agent")}
      all |> Map.new() |> Enum.reject(fn {_, fields} -> fields == %{} end) |> Enum.sort()
    else
      _ -> raise ArgumentError, "the store #{path} is not a file of assignments"
    end
  end

  # Tried on the limiter, which keeps no file yet: what it takes, the file may say.
  defp refused(reference, agent, fields) do
    id = id(agent)
    plan = if plan = fields["plan"], do: [{"plan", Native.assign(reference, id, plan)}], else: []

    overrides =
      for {lane, limit} <- fields["overrides"] || %{},
          do: {{"overrides", lane}, Native.set_override(reference, id, lane, limit)}

    for {what, {:error, _}} <- plan ++ overrides, do: what
  end

  defp name({"overrides", lane}), do: "the override of #{lane}"
  defp name("plan"), do: "its plan"

  defp without(fields, refused) do
    Enum.reduce(refused, fields, fn
      {"overrides", lane}, fields -> Map.update!(fields, "overrides", &Map.delete(&1, lane))
      key, fields -> Map.delete(fields, key)
    end)
  end

  defp only(fields, refused) do
    lanes = for {"overrides", lane} <- refused, do: lane
    overrides = Map.take(fields["overrides"] || %{}, lanes)
    plan = if "plan" in refused, do: %{"plan" => fields["plan"]}, else: %{}
    if overrides == %{}, do: plan, else: Map.put(plan, "overrides", overrides)
  end

  defp id(%{"base64" => coded}), do: Base.decode64!(coded)
  defp id(text), do: text

  defp line(agent, fields) do
    given =
      for key <- ["plan", "overrides", "exempt"], value = fields[key], value not in [nil, %{}, false], do: {key, value}

    JSON.encode_pairs([{"agent", agent} | given])
  end

  defp document(agents) do
    lines =
      for {agent, fields} <- agents,
          fields != %{} and fields != %{"overrides" => %{}},
          do: ["    ", line(agent, fields)]

    ["{\n  \"version\": 1,\n  \"agents\": [\n", Enum.intersperse(lines, ",\n"), "\n  ]\n}\n"]
  end

  # --- The policy.

  # The policy that is kept was put in force in the place of one; if the options have another by now, they decide.
  defp policy(reference, %{store: path} = options) do
    kept = path <> ".policy.toml"

    with {:ok, text} <- File.read(kept) do
      ["# instead of " <> instead | _] = String.split(text, "\n", parts: 2)

      with true <- instead == fingerprint(options), :ok <- Native.replace_policy(reference, {:toml, text}) do
        :ok
      else
        problem ->
          File.rename!(kept, kept <> ".aside")

          Logger.warning(
            "the policy that was put in force while #{inspect(options.name)} ran is set aside in #{kept}.aside: " <>
              if(problem == false, do: "its options have another policy now", else: inspect(problem))
          )
      end
    end

    :ok
  end

  @doc "Keeps the policy that was put in force; `nil` if it is that of the options again."
  def put_policy(%{store: nil}, _toml), do: :ok

  def put_policy(%{store: path}, nil) do
    case File.rm(path <> ".policy.toml") do
      {:error, reason} when reason != :enoent -> {:error, :file.format_error(reason)}
      _ -> :ok
    end
  end

  def put_policy(%{store: path} = options, toml) do
    replace!(path <> ".policy.toml", ["# instead of ", fingerprint(options), "\n", toml])
    :ok
  rescue
    error in File.Error -> {:error, Exception.message(error)}
  end

  defp fingerprint(options) do
    source = :erlang.term_to_binary(Policy.source(options.policy))
    :crypto.hash(:sha256, source) |> binary_part(0, 16) |> Base.encode16(case: :lower)
  end

  # All of the file, or the old one.
  defp replace!(path, text) do
    temporary = path <> ".new"
    File.write!(temporary, text, [:sync])
    File.chmod!(temporary, 0o600)
    File.rename!(temporary, path)
  end
end
