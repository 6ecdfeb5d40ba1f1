defmodule Tollgate.ConformanceTest do
  # The requests and responses that every adapter of the gate agrees on: bindings/gate/conformance.
  use ExUnit.Case, async: true

  alias Tollgate.TestJSON

  @folder Path.expand("../../gate/conformance", __DIR__)
  # What an application with Plug has elsewhere: its router chooses lanes and what is left out, and something like
  # `remote_ip` reads what proxies say.
  @elsewhere ~w(routes path_contains pass_others allow_routes allow_prefixes trusted_proxies lane)
  # An id that is too long is limited by its hash here; of gRPC Plug's servers speak nothing; and a client that sends
  # what a proxy would is limited by `remote_ip`, as the application believes it.
  @others [
    "an id that is too long is refused",
    "gRPC gets a status of its own",
    "a client that claims to be behind a proxy is limited"
  ]

  for path <- Path.wildcard(Path.join(@folder, "*.json")), found <- TestJSON.decode!(File.read!(path))["cases"] do
    @external_resource path

    if found["name"] not in @others and Map.take(found["gate"], @elsewhere) == %{} do
      @tag :conformance
      test "#{Path.basename(path, ".json")}: #{found["name"]}" do
        run(unquote(Macro.escape(found)))
      end
    end
  end

  test "most cases are run, and those that are left out are there" do
    cases = for path <- Path.wildcard(Path.join(@folder, "*.json")), do: TestJSON.decode!(File.read!(path))["cases"]
    cases = Enum.concat(cases)
    assert @others -- Enum.map(cases, & &1["name"]) == []
    left_out = Enum.count(cases, &(&1["name"] in @others or Map.take(&1["gate"], @elsewhere) != %{}))
    assert length(cases) - left_out >= 25
  end

  defp run(found) do
    name = :"conformance#{System.unique_integer([:positive])}"
    policy = {:toml, Enum.join(found["policy"], "\n")}
    start_supervised!({Tollgate, name: name, agents: 100, clock: :manual, policy: policy, telemetry: :off})
    [{lane, _} | _] = Tollgate.Native.lanes(elem(Tollgate.Instance.find(name), 0))

    options = Tollgate.Plug.init([instance: name, lane: lane, unix_ms: fn -> 1_000_250 end] ++ gate(found["gate"]))

    for step <- found["steps"] do
      Tollgate.advance_clock(name, step["advance_ms"] || 0)
      times = step["times"] || 1
      for _ <- 2..times//1, do: refute(Tollgate.Plug.call(conn(step), options).halted)
      conn = Tollgate.Plug.call(conn(step), options)
      expected = step["response"]

      if conn.halted do
        assert {conn.status, headers(conn), conn.resp_body} ==
                 {expected["status"], expected["headers"], expected["body"]}
      else
        assert {200, headers(conn), "hello"} == {expected["status"], expected["headers"], expected["body"]}
      end
    end
  end

  defp headers(conn), do: Map.new(List.keydelete(conn.resp_headers, "cache-control", 0))

  defp conn(step) do
    [method, target] = String.split(step["request"], " ")
    [path | query] = String.split(target, "?")
    {:ok, peer} = :inet.parse_address(String.to_charlist(step["peer"] || "127.0.0.1"))

    %Plug.Conn{
      method: method,
      request_path: path,
      query_string: Enum.join(query),
      remote_ip: peer,
      req_headers: for([name, value] <- step["headers"] || [], do: {name, value})
    }
  end

  defp gate(settings),
    do: Enum.flat_map(Map.put_new(settings, "count_violations", false), &setting/1) ++ profile(settings)

  defp profile(settings), do: [profile: String.to_atom(settings["profile"] || "standard")]

  defp setting({"keys", keys}), do: [keys: Enum.map(keys, &key/1)]
  defp setting({"profile", _}), do: []
  defp setting({"style", "draft-10"}), do: [headers: :draft10]
  defp setting({"style", "legacy"}), do: [headers: :legacy]
  defp setting({"style", "off"}), do: [headers: false]
  defp setting({"count_violations", counted}), do: [counted: counted]
  defp setting({"headers_only_when_low", low}), do: [headers_only_when_low: low]
  defp setting({"answer_head", head}), do: [answer_head: head]
  defp setting({"allow_networks", networks}), do: [allow: networks]
  defp setting({"cost", %{"reads" => name}}), do: [cost: fn conn -> String.to_integer(read(conn, name) || "1") end]

  defp setting({"plans", plans}),
    do: [plans: for(%{"plan" => plan, "reads" => name} <- plans, do: {plan, &(read(&1, name) != nil)})]

  defp key(%{"header" => name}), do: {:header, name}
  defp key(%{"secret_header" => name}), do: {:secret_header, name}
  defp key(%{"address" => 64}), do: :address
  defp key(%{"shared" => id}), do: {:shared, id}

  defp key(%{"function" => what, "reads" => name} = key) do
    {what, fn conn -> if id = read(conn, name), do: (key["prefix"] || "") <> id end}
  end

  defp read(conn, name), do: conn |> Plug.Conn.get_req_header(name) |> List.first()
end
