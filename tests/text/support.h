#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "temporary_folder.h"
#include "text/byte_level.h"
#include "text/formats.h"

namespace hearth::text {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

inline Ids encode(const Tokenizer& tokenizer, std::string_view text,
                  SpecialTokens special = SpecialTokens::as_text) {
  Ids ids;
  tokenizer.encode(text, special, ids);
  return ids;
}

/// The tokens of a text as the file spells them.
inline std::vector<std::string> tokens(const Tokenizer& tokenizer, std::string_view text,
                                       SpecialTokens special = SpecialTokens::as_text) {
  std::vector<std::string> all;
  for (const int32_t id : encode(tokenizer, text, special)) all.push_back(tokenizer.token(id));
  return all;
}

/// A tokenizer.json of BPE over these tokens, numbered from 0, and merges like "a b".
inline Json bpe_json(const std::vector<std::string>& vocabulary, const std::vector<std::string>& merges) {
  Json json = {{"added_tokens", Json::array()},
               {"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", merges}}}};
  for (size_t id = 0; id < vocabulary.size(); ++id) json["model"]["vocab"][vocabulary[id]] = id;
  return json;
}

/// The same over bytes: ids 0 to 255 are the bytes, each merge makes a token more.
inline Json byte_level_json(const std::vector<std::string>& merges) {
  std::vector<std::string> vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.push_back(to_byte_level(std::string(1, static_cast<char>(byte))));
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    vocabulary.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  Json json = bpe_json(vocabulary, merges);
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  json["decoder"] = {{"type", "ByteLevel"}};
  return json;
}

/// The same as Llama 2's file has it: spaces are U+2581, bytes are <0x00> to <0xFF> from id 1 on.
inline Json metaspace_json(std::vector<std::string> more, const std::vector<std::string>& merges) {
  std::vector<std::string> vocabulary = {"<unk>"};
  for (int byte = 0; byte < 256; ++byte) vocabulary.push_back(fmt::format("<0x{:02X}>", byte));
  vocabulary.insert(vocabulary.end(), more.begin(), more.end());
  Json json = bpe_json(vocabulary, merges);
  json["model"].update({{"byte_fallback", true}, {"fuse_unk", true}, {"unk_token", "<unk>"}});
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", kMetaspace}},
                          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMetaspace}}}}};
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", kMetaspace}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return json;
}

inline std::unique_ptr<Tokenizer> load(const Json& json) {
  return parse_tokenizer_json(json.dump(), "tokenizer.json", {});
}

/// The sentence with which a load is refused; "" when it is not.
template <typename Load>
std::string refusal(Load&& load) {
  try {
    load();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

inline void put(const fs::path& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

}  // namespace hearth::text
