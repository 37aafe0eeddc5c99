// Encodes and decodes for tokenizing.py: JSON lines {tokenizer, texts, ids} in, {encoded, decoded} or {error}
// out.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/formats.h"

namespace {

using hearth::text::SpecialTokens;
using hearth::text::Tokenizer;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

/// As Hugging Face's tokenizers give them: with what goes around a text.
Ids encode(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids = tokenizer.special().prefix;
  tokenizer.encode(text, SpecialTokens::parsed, ids);
  ids.insert(ids.end(), tokenizer.special().suffix.begin(), tokenizer.special().suffix.end());
  return ids;
}

Json run(const Json& request) {
  try {
    const auto tokenizer =
        hearth::text::parse_tokenizer_json(request["tokenizer"].get<std::string>(), "tokenizer.json", {});
    Json encoded = Json::array(), decoded = Json::array();
    for (const Json& text : request["texts"]) encoded.push_back(encode(*tokenizer, text.get<std::string>()));
    for (const Json& ids : request["ids"]) decoded.push_back(tokenizer->decode(ids.get<Ids>()));
    return {{"encoded", encoded}, {"decoded", decoded}};
  } catch (const hearth::UserError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << run(Json::parse(line)).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}
