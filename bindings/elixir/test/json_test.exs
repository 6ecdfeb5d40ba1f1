defmodule Tollgate.JSONTest do
  use ExUnit.Case, async: true

  alias Tollgate.{JSON, TestJSON}

  test "a text comes back as it was, whatever is in it" do
    for text <- [
          "",
          "agent-7",
          ~s("quoted"),
          "back\\slash",
          "line\nbreak\r\t\b\f",
          <<0>>,
          "\x7F",
          "zwölf 🚦",
          "</script>"
        ] do
      assert TestJSON.decode!(JSON.encode(text)) == text
    end

    # Every character there is below the first surrogate, and some above.
    all = for(code <- Enum.concat(0..0xD7FF, [0xE000, 0xFFFD, 0x10FFFF]), do: <<code::utf8>>) |> Enum.join()
    assert TestJSON.decode!(JSON.encode(all)) == all
  end

  test "bytes that are not text differ from any text" do
    for bytes <- [<<255>>, <<0xC3>>, "abc" <> <<0xFF>>, <<0xED, 0xA0, 0x80>>] do
      assert %{"base64" => coded} = TestJSON.decode!(JSON.encode(bytes))
      assert Base.decode64!(coded) == bytes
    end
  end

  test "the rest is what it looks like" do
    assert JSON.encode(a: 1, b: [true, false, nil], c: :infinity, d: :heavy, e: []) ==
             ~s({"a":1,"b":[true,false,null],"c":null,"d":"heavy","e":[]})
  end

  test "what is read is JSON, and nothing else" do
    for {text, value} <- [
          {~s({"a": [1, -2, 1.5, 2e3, -1.5E-2, "x", true, false, null, {}]}),
           %{"a" => [1, -2, 1.5, 2.0e3, -0.015, "x", true, false, nil, %{}]}},
          {~S("\u00fc\ud83d\ude80\n\"\/"), "ü🚀\n\"/"},
          {" [] ", []},
          {"0", 0}
        ] do
      assert JSON.decode(text) == {:ok, value}
    end

    deep = String.duplicate("[", 100_000)

    for text <- [
          "",
          "{",
          "[1,]",
          "{\"a\":1,}",
          "01",
          "1.",
          "+1",
          ".5",
          "1e",
          "nul",
          "tru",
          "\"\n\"",
          ~S("\x"),
          ~S("\ud800"),
          ~S("\ud800x"),
          "{\"a\":1,\"a\":2}",
          "{1:2}",
          "[1] 2",
          <<255>>,
          "\"" <> <<255>> <> "\"",
          deep,
          String.duplicate("9", 100_000),
          "1e999"
        ] do
      assert JSON.decode(text) == :error, "of #{inspect(String.slice(text, 0, 20))}"
    end
  end
end
