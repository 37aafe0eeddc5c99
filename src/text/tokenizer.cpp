#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/foreign.h"
#include "text/formats.h"

namespace hearth::text {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

std::unique_ptr<Tokenizer> open_file(const fs::path& path) {
  const fs::path folder = path.parent_path();
  const TokenizerConfig config = read_tokenizer_config(folder);
  if (path.filename() == "vocab.json") return open_vocab_merges(path, folder / "merges.txt", config);
  if (path.filename() == "encoder.json") return open_vocab_merges(path, folder / "vocab.bpe", config);
  const std::string bytes = read_file(path, kMaxFileBytes);
  const std::string file = path.string();
  if (path.extension() == ".json") return parse_tokenizer_json(bytes, file, config);
  return is_tiktoken(bytes) ? parse_tiktoken(bytes, file, config) : parse_sentencepiece(bytes, file, config);
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& model_folder_or_file) {
  if (!fs::exists(model_folder_or_file))
    user_error("'{}' does not exist; it must be a model folder or a tokenizer file{}",
               model_folder_or_file.string(), download_advice(model_folder_or_file));
  if (!fs::is_directory(model_folder_or_file)) return open_file(model_folder_or_file);
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "encoder.json"}) {
    const fs::path file = model_folder_or_file / name;
    if (fs::exists(file)) return open_file(file);
  }
  user_error(
      "'{}' has no tokenizer.json, tokenizer.model, spiece.model, or vocab.json and merges.txt; use the "
      "Hugging Face folder of a model",
      model_folder_or_file.string());
}

std::vector<fs::path> tokenizer_files(const fs::path& model_folder_or_file) {
  const bool is_file = fs::is_regular_file(model_folder_or_file);
  const fs::path folder =
      fs::is_directory(model_folder_or_file) ? model_folder_or_file : model_folder_or_file.parent_path();
  std::vector<fs::path> files;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "tokenizer_config.json",
                           "vocab.json", "merges.txt", "encoder.json", "vocab.bpe", "special_tokens_map.json",
                           "added_tokens.json", "chat_template.jinja"})
    if (fs::is_regular_file(folder / name)) files.push_back(folder / name);
  if (is_file && std::ranges::find(files, model_folder_or_file) == files.end())
    files.push_back(model_folder_or_file);
  return files;
}

}  // namespace hearth::text
