#pragma once

#include <optional>

#include "data/class_balance.h"
#include "data/masks/mask_rows.h"
#include "models/model.h"
#include "recipe/recipe.h"
#include "tasks/segment/confusion.h"
#include "tasks/segment/mask_predictor.h"
#include "tasks/task.h"

namespace hearth::tasks {

struct SegmentTaskOptions {
  models::ModelOptions model;
  data::MaskOptions train, held_out;
  data::LoaderOptions loader;
  data::MaskRowOptions rows;  ///< options of training rows; class_weights are those of the recipe
  recipe::ClassWeights class_weights = recipe::ClassWeights::none;
  /// True to balance classes: each image counts for its rarest class, and each class is drawn equally often.
  bool balance = false;
};

/// Semantic segmentation. The constructor opens the data. Throws a UserError if the data does not fit the
/// model.
class SegmentTask : public Task {
 public:
  explicit SegmentTask(const SegmentTaskOptions& options);

  int64_t num_rows() const override { return data::epoch_rows(train_->size(), loader_); }
  int64_t num_data_rows() const override { return train_->size(); }
  int64_t num_eval_rows() const override { return test_->size(); }
  std::vector<int64_t> eval_sizes(int64_t batch) const override;
  int64_t num_samples(const data::LoaderPosition&, int64_t count) const override { return count; }
  using Task::open;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                    const data::LoaderShare& share) const override;
  std::unique_ptr<BatchStream> open_held_out() const override;
  Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const override;
  std::vector<std::string> class_names() const override;
  const char* unit() const override { return "img"; }
  std::string describe() const override;
  std::string warning() const override;
  std::string score_text(double score) const override;
  std::string evaluation_text(const Evaluation& found) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;
  std::string last_line(const fs::path& log) const override;
  void save_companions(const fs::path& folder, DType) const override;
  void show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const override;
  int64_t staging_bytes() const override;

 private:
  MaskInput input() const;

  models::ModelOptions model_;
  data::LoaderOptions loader_;
  data::MaskRowOptions options_;
  std::unique_ptr<data::MaskedImages> train_, test_;
  std::unique_ptr<data::MaskRows> rows_;  ///< rows of the training images
  std::optional<data::ClassBalance> balance_;
};

}  // namespace hearth::tasks
