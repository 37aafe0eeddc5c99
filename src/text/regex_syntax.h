#pragma once

#include <string>
#include <string_view>

namespace hearth::text {

/// Translates a regular expression from Oniguruma's syntax (used in tokenizer.json) to that of PCRE2 with the
/// options UTF, UCP and MULTILINE. Throws a UserError naming `where` for constructs that PCRE2 lacks or
/// interprets differently.
std::string pcre_of_oniguruma(std::string_view pattern, std::string_view where);

/// Characters of \w, as members of a PCRE2 character class: in Oniguruma, and in Rust's regex crate.
inline constexpr std::string_view kOnigurumaWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
inline constexpr std::string_view kRustWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

}  // namespace hearth::text
