#include "hub/gguf_model.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/gguf_cache.h"
#include "base/run_files.h"
#include "base/text.h"
#include "hub/floats.h"
#include "hub/gguf_parts.h"

namespace hearth::hub {
namespace {

using text::GgmlVocabulary;

constexpr std::string_view kRopeTables[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                            "rope_factors_short.weight"};
/// Tokens at which llama.cpp ends an answer if they are control tokens of the vocabulary.
constexpr std::string_view kAnswerEnds[] = {"<|eot_id|>", "<|im_end|>",    "<|end|>",
                                            "<|eom_id|>", "<end_of_turn>", "<|endoftext|>"};

/// Decoder of a tensor whose rows are interleaved for RoPE or whose values have an offset in the file:
/// returns the rows and values of the original model.
class RestoredDecoder final : public io::TensorDecoder {
 public:
  RestoredDecoder(io::TensorView stored, int64_t heads, float offset)
      : stored_(std::move(stored)), heads_(heads), offset_(offset) {}

  void decode(const io::TensorView& view, int64_t from, std::span<float> values) const override {
    const int64_t rows = view.shape[0], columns = view.shape.num_elements() / rows;
    while (!values.empty()) {
      const int64_t row = from / columns, column = from % columns;
      const int64_t count = std::min(std::ssize(values), columns - column);
      const int64_t stored_row = heads_ > 0 ? interleaved_row(row, rows, heads_) : row;
      const std::vector<float> part = floats_of(stored_, stored_row * columns + column, count);
      std::ranges::transform(part, values.begin(), [&](float value) { return value - offset_; });
      values = values.subspan(static_cast<size_t>(count));
      from += count;
    }
  }

 private:
  io::TensorView stored_;
  int64_t heads_;
  float offset_;
};

std::optional<int32_t> token_id(const io::GgufFile& file, const char* role) {
  const auto* id = file.find<int64_t>(fmt::format("tokenizer.ggml.{}_token_id", role));
  if (id == nullptr || *id < 0 || *id > INT32_MAX) return std::nullopt;
  return static_cast<int32_t>(*id);
}

std::optional<bool> flag(const io::GgufFile& file, const char* key) {
  const bool* value = file.find<bool>(key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

/// Returns a generation_config.json with all tokens that end an answer, EOS first.
std::string generation_config(const io::GgufFile& file, const GgmlVocabulary& vocabulary) {
  std::vector<int32_t> ends;
  const auto add = [&](std::optional<int32_t> id) {
    if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
  };
  for (const char* role : {"eos", "eot", "eom"}) add(token_id(file, role));
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const bool is_end = std::ranges::find(kAnswerEnds, vocabulary.tokens[i]) != std::end(kAnswerEnds);
    if (is_end && vocabulary.kinds[i] == GgmlVocabulary::Kind::control) add(static_cast<int32_t>(i));
  }
  return nlohmann::ordered_json({{"eos_token_id", ends}}).dump(2) + "\n";
}

/// Returns a view of a tensor of the file with transformers' name, rows and values.
io::TensorView restored(const GgufPart& part, const io::TensorView& stored, const fs::path& path) {
  if (stored.shape != part.target.shape)
    user_error("{}: expected '{}' with shape {}, found {}; convert the model again", path.string(),
               stored.name, to_string(part.target.shape), to_string(stored.shape));
  io::TensorView view = stored;
  view.name = part.source;
  if (part.heads > 0 || part.offset != 0)
    view.decoder = std::make_shared<RestoredDecoder>(stored, part.heads, part.offset);
  return view;
}

}  // namespace

GgmlVocabulary gguf_vocabulary(const io::GgufFile& file) {
  const std::string ggml = "tokenizer.ggml.";
  GgmlVocabulary made{.model = file.at<std::string>(ggml + "model"),
                      .tokens = file.at<std::vector<std::string>>(ggml + "tokens"),
                      .bos = token_id(file, "bos"),
                      .eos = token_id(file, "eos"),
                      .unk = token_id(file, "unknown"),
                      .pad = token_id(file, "padding"),
                      .add_bos = flag(file, "tokenizer.ggml.add_bos_token"),
                      .add_eos = flag(file, "tokenizer.ggml.add_eos_token")};
  if (const auto* pre = file.find<std::string>(ggml + "pre")) made.pre = *pre;
  for (const int64_t kind : file.at<std::vector<int64_t>>(ggml + "token_type"))
    made.kinds.push_back(static_cast<GgmlVocabulary::Kind>(std::clamp<int64_t>(kind, 0, 7)));
  if (const auto* scores = file.find<std::vector<double>>(ggml + "scores"))
    made.scores.assign(scores->begin(), scores->end());
  if (const auto* merges = file.find<std::vector<std::string>>(ggml + "merges")) made.merges = *merges;
  // The file does not have this property of Phi-3's tokens; llama.cpp infers it from the name, too.
  if (const auto* name = file.find<std::string>("general.name")) {
    const std::string lower = lowered(*name);
    made.strips_right = lower.find("phi-3") != lower.npos || lower.find("phi3") != lower.npos;
  }
  made.add_space_prefix = flag(file, "tokenizer.ggml.add_space_prefix").value_or(true);
  return made;
}

fs::path unpack_gguf(const fs::path& model) {
  const fs::path folder = config_folder(model);
  if (folder == model && model.extension() == ".gguf" && !fs::is_directory(model))
    user_error("'{}' is not a GGUF file, or there is no such file; download it again", model.string());
  if (folder == model || path_exists(folder / kModelConfig)) return folder;
  const io::GgufFile file(model);
  const std::string config = gguf_config_json(file);
  const GgmlVocabulary vocabulary = gguf_vocabulary(file);
  const std::string tokenizer = text::tokenizer_json(vocabulary, model.string());
  make_folder(folder);
  write_file_atomically(folder / "tokenizer.json", tokenizer);
  write_file_atomically(folder / "tokenizer_config.json", text::tokenizer_config_json(vocabulary));
  write_file_atomically(folder / "generation_config.json", generation_config(file, vocabulary));
  if (const auto* chat = file.find<std::string>("tokenizer.chat_template"))
    write_file_atomically(folder / "chat_template.jinja", *chat);
  // The config is last: if it exists, all files are complete.
  write_file_atomically(folder / kModelConfig, config);
  return folder;
}

void show_gguf(io::WeightFiles& files) {
  const io::GgufFile& file = *files.gguf();
  const models::DecoderConfig config =
      models::parse_decoder_config(gguf_config_json(file), file.path().string());
  std::set<std::string_view> used(std::begin(kRopeTables), std::end(kRopeTables));
  std::vector<io::TensorView> shown;
  for (const GgufPart& part : gguf_parts(config)) {
    if (!part.values.empty()) continue;
    const io::TensorView* stored = files.find(part.target.name);
    if (stored == nullptr)
      user_error("{}: the tensor '{}' is missing; download the file again", file.path().string(),
                 part.target.name);
    used.insert(stored->name);
    shown.push_back(restored(part, *stored, file.path()));
  }
  for (const io::TensorView& tensor : file.tensors()) {
    if (!used.contains(tensor.name))
      user_error(
          "{}: the tensor '{}' does not belong to the architecture '{}'; use the original model's folder",
          file.path().string(), tensor.name, gguf_architecture(config));
  }
  files.show(std::move(shown), {});
}

}  // namespace hearth::hub
