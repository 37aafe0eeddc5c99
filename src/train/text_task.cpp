#include "train/text_task.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/safetensors.h"

namespace hearth::train {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 34;

/// Micro-batches in staging memory of their own.
class Staging {
 public:
  Staging(int64_t num_rows, int64_t context) : context_(context) {
    for (auto* buffer : {&tokens_, &labels_, &positions_})
      buffer->resize(static_cast<size_t>(num_rows * context) + 16);
    for (size_t i = 0; i < positions_.size(); ++i)
      positions_[i] = static_cast<int32_t>(static_cast<int64_t>(i) % context);
  }

  void set_row(int64_t row, std::span<const int32_t> text, int64_t from) {
    const auto source = text.begin() + from * context_;
    std::copy_n(source, context_, tokens_.begin() + row * context_);
    std::copy_n(source + 1, context_, labels_.begin() + row * context_);
  }
  MicroBatch batch(int64_t num_rows) const {
    return {{tokens_.data(), labels_.data(), positions_.data()}, num_rows};
  }

 private:
  int64_t context_;
  std::vector<int32_t> tokens_, labels_, positions_;
};

class TextStream : public BatchStream {
 public:
  TextStream(std::span<const int32_t> text, int64_t context, int64_t batch, bool shuffle,
             data::LoaderPosition from)
      : text_(text),
        num_rows_((std::ssize(text) - 1) / context),
        batch_(batch),
        shuffle_(shuffle),
        position_(from),
        staging_{{batch, context}, {batch, context}, {batch, context}} {}

  MicroBatch next() override {
    Staging& staging = staging_[turn_++ % std::size(staging_)];
    const int64_t count = std::min(batch_, num_rows_ - position_.sample);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = position_.sample + i;
      staging.set_row(i, text_,
                      shuffle_ ? data::sample_at(position_.seed, position_.epoch, num_rows_, at) : at);
    }
    position_.sample += count;
    position_.total += count;
    if (position_.sample == num_rows_) {
      position_.sample = 0;
      ++position_.epoch;
    }
    return staging.batch(count);
  }
  data::LoaderPosition position() const override { return position_; }

 private:
  std::span<const int32_t> text_;
  int64_t num_rows_;
  int64_t batch_;
  bool shuffle_;
  data::LoaderPosition position_;
  Staging staging_[3];
  size_t turn_ = 0;
};

/// Tokens that are numbers already: "tokens", whole numbers [N], of a safetensors file.
void read_token_ids(const fs::path& path, int64_t vocab_size, std::vector<int32_t>& tokens) {
  const io::SafetensorsFile file(path);
  const io::TensorView* found = file.find("tokens");
  if (found == nullptr || found->shape.rank() != 1 || is_floating(found->dtype))
    user_error("{}: expected whole-numbered tokens [N]", path.string());
  for (int64_t i = 0; i < found->shape[0]; ++i) {
    const double id = load_element(found->dtype, found->bytes.data(), i);
    if (!(id >= 0 && id < static_cast<double>(vocab_size))) {
      user_error("{}: expected tokens from 0 to {}, got {} at place {}", path.string(), vocab_size - 1, id,
                 i);
    }
    tokens.push_back(static_cast<int32_t>(id));
  }
}

fs::path tokenizer_of(const TextOptions& options) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  return options.config.empty() ? fs::path(options.model) : fs::path(options.config).parent_path();
}

}  // namespace

TextTask::TextTask(const Recipe& recipe)
    : context_(recipe.text.context),
      batch_(recipe.batch),
      shuffle_(recipe.loader.shuffle),
      config_file_(recipe.text.config_file()),
      tokenizer_path_(tokenizer_of(recipe.text)),
      config_(models::read_decoder_config(config_file_)) {
  read(recipe.data.path);
  auto num_train = static_cast<int64_t>(static_cast<double>(tokens_.size()) * (1 - recipe.text.val_share));
  if (!recipe.text.val_path.empty()) {
    num_train = std::ssize(tokens_);
    read(recipe.text.val_path);
  }
  train_ = std::span(tokens_).first(static_cast<size_t>(num_train));
  held_out_ = std::span(tokens_).subspan(static_cast<size_t>(num_train));
  for (const auto& [part, name] : {std::pair(train_, "to train on"), std::pair(held_out_, "held out")}) {
    if (std::ssize(part) > context_) continue;
    user_error("expected more than {} tokens {}, got {} in {}; try a shorter data.context", context_, name,
               part.size(), recipe.data.path.string());
  }
}

void TextTask::read(const fs::path& path) {
  if (path.extension() == ".safetensors") return read_token_ids(path, config_.vocab_size, tokens_);
  if (!tokenizer_) tokenizer_ = text::open_tokenizer(tokenizer_path_);
  if (tokenizer_->vocab_size() > config_.vocab_size) {
    user_error("expected a tokenizer of at most the {} tokens of {}, got one of {} in {}", config_.vocab_size,
               config_file_.string(), tokenizer_->vocab_size(), tokenizer_path_.string());
  }
  tokenizer_->encode(read_file(path, kMaxTextBytes), text::SpecialTokens::as_text, tokens_);
}

std::unique_ptr<BatchStream> TextTask::open(const data::LoaderPosition& from) const {
  return std::make_unique<TextStream>(train_, context_, batch_, shuffle_, from);
}

Evaluation TextTask::evaluate(Engine& engine, int64_t) const {
  TextStream stream(held_out_, context_, batch_, false, {});
  Evaluation result;
  for (int64_t done = 0; done < num_eval_rows();) {
    const MicroBatch batch = stream.next();
    result.loss += engine.evaluate(batch);
    done += batch.num_rows;
  }
  result.loss /= static_cast<double>(num_eval_rows() * context_);
  result.score = -result.loss;
  result.metrics = {{"perplexity", std::exp(result.loss)}};
  return result;
}

std::string TextTask::describe() const {
  return fmt::format("{} training and {} validation tokens", train_.size(), held_out_.size());
}

std::string TextTask::score_text(double score) const {
  return fmt::format("perplexity {:.3f}", std::exp(-score));
}

void TextTask::report(const Evaluation&, const fs::path& log, io::ReportData& data) const {
  data.summary.emplace_back("training tokens", std::to_string(train_.size()));
  data.summary.emplace_back("validation tokens", std::to_string(held_out_.size()));
  data.score = {"Validation perplexity", "perplexity", io::read_curve(log, "eval_perplexity")};
}

int64_t TextTask::staging_bytes() const { return std::ssize(tokens_) * 4 + 3 * 3 * 4 * batch_ * context_; }

void TextTask::save_companions(const fs::path& run) const {
  const auto json = nlohmann::ordered_json::parse(read_file(config_file_));
  write_file_atomically(run / "config.json", models::with_both_versions(json, config_).dump(2) + "\n");
  const fs::path folder = fs::is_directory(tokenizer_path_) ? tokenizer_path_ : tokenizer_path_.parent_path();
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt",
        "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "generation_config.json"}) {
    if (fs::is_regular_file(folder / name)) write_file_atomically(run / name, read_file(folder / name));
  }
}

}  // namespace hearth::train
