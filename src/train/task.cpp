#include "base/error.h"
#include "io/weight_files.h"
#include "models/decoder/config.h"
#include "train/image_task.h"
#include "train/preference_task.h"

namespace hearth::train {

MicroBatch AheadStream::next() {
  const MicroBatch batch = ahead_ ? *ahead_ : stream_->next();
  ahead_.reset();
  return batch;
}

const MicroBatch* AheadStream::peek() {
  try {
    if (!ahead_) ahead_ = stream_->next();
  } catch (const UserError&) {
    return nullptr;
  }
  return &*ahead_;
}

std::vector<int64_t> batch_sizes(int64_t count, int64_t batch) {
  std::vector<int64_t> sizes;
  if (count >= batch) sizes.push_back(batch);
  if (count % batch != 0) sizes.push_back(count % batch);
  return sizes;
}

void check_first_weights(const Recipe& recipe) {
  const std::string& model = recipe.init.empty() ? recipe.text.model : recipe.init;
  if (is_text(recipe)) models::read_decoder_config(recipe.text.config_file());
  if (!model.empty()) io::WeightFiles{fs::path(model)};
  if (recipe.adapter.path.empty()) return;
  read_adapter_config(recipe.adapter.path);
  io::WeightFiles{adapter_weights(recipe.adapter.path)};
}

std::unique_ptr<Task> open_task(const Recipe& recipe) {
  if (recipe.objective == "dpo") return std::make_unique<PreferenceTask>(recipe);
  if (is_text(recipe)) return std::make_unique<TextTask>(recipe);
  return std::make_unique<ImageTask>(recipe);
}

}  // namespace hearth::train
