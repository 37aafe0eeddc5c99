#include "base/utf8.h"

#include "support.h"

namespace hearth::text {
namespace {

TEST(Utf8, EveryCodePointReadsBack) {
  for (char32_t value = 0; value <= 0x10FFFF; value += value < 0x3000 ? 1 : 97) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text;
    append_utf8(text, value);
    const Character first = first_character(text + "a");
    ASSERT_TRUE(first.valid && first.value == value && first.bytes == text.size())
        << static_cast<uint32_t>(value);
    const Character last = last_character("\xC3" + text);
    ASSERT_TRUE(last.valid && last.value == value && last.bytes == text.size())
        << static_cast<uint32_t>(value);
  }
}

TEST(Utf8, RefusesWhatIsNotACharacter) {
  for (const std::string_view bad :
       {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x96", "\xE2\x28\xA1", "\xFF"}) {
    EXPECT_FALSE(first_character(bad).valid) << bad;
    EXPECT_EQ(first_character(bad).bytes, 1U);
    EXPECT_EQ(valid_prefix("0123456789" + std::string(bad)), 10U);
  }
}

TEST(Utf8, RunsCoverTheText) {
  std::string seen;
  for_each_run(
      "ab\xFF\xFE\xC3\xA9", [&](std::string_view run) { seen += fmt::format("[{}]", run); },
      [&](std::string_view byte) { seen += fmt::format("<{:02x}>", static_cast<uint8_t>(byte[0])); });
  EXPECT_EQ(seen, "[ab]<ff><fe>[\xC3\xA9]");
}

TEST(Utf8, KnowsSpaces) {
  for (const char32_t space : {U' ', U'\n', U'\u00a0', U'\u3000', U'\u2003'}) EXPECT_TRUE(is_space(space));
  for (const char32_t other : {U'a', U'\u180e', U'\u200b', U'.'}) EXPECT_FALSE(is_space(other));
}

TEST(ByteLevel, SpellsAsGpt2Does) {
  EXPECT_EQ(to_byte_level(" the\n"), "\u0120the\u010a");
  EXPECT_EQ(to_byte_level("\xAD"), "\u0143");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
  EXPECT_EQ(from_byte_level("a b"), std::nullopt) << "a space is not in the alphabet";
  EXPECT_EQ(from_byte_level("\u4e2d"), std::nullopt);
  EXPECT_EQ(from_byte_level("\xFF"), std::nullopt);
}

TEST(Utf8, HoldsBackHalfACharacterAtTheEnd) {
  const std::string text = "a\u20ac\U0001F600";
  const std::vector<size_t> whole = {0, 1, 1, 1, 4, 4, 4, 4, 8};
  for (size_t count = 0; count <= text.size(); ++count)
    EXPECT_EQ(complete_prefix(std::string_view(text).substr(0, count)), whole[count]) << count;
  EXPECT_EQ(complete_prefix("\x80\x80\x80\x80"), 4u);
}

}  // namespace
}  // namespace hearth::text
