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
end
