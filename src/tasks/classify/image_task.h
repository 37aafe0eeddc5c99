#pragma once

#include <optional>

#include "data/class_balance.h"
#include "data/image_rows.h"
#include "models/model.h"
#include "tasks/task.h"

namespace hearth::tasks {

struct ImageTaskOptions {
  models::ModelOptions model;
  data::DatasetOptions train, held_out;
  data::LoaderOptions loader;
  data::PixelOptions pixels;
  bool balance = false;  ///< true if training draws each class equally often
};

/// Image classification on a labeled dataset. The constructor opens the data. Throws a UserError if the data
/// does not fit the model.
class ImageTask : public Task {
 public:
  explicit ImageTask(const ImageTaskOptions& options);

  int64_t num_rows() const override { return data::epoch_rows(train_->size(), loader_); }
  int64_t num_data_rows() const override { return train_->size(); }
  int64_t num_eval_rows() const override { return test_->size(); }
  int64_t num_samples(const data::LoaderPosition&, int64_t count) const override { return count; }
  using Task::open;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                    const data::LoaderShare& share) const override;
  std::unique_ptr<BatchStream> open_held_out() const override;
  Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const override;
  std::vector<std::string> class_names() const override { return train_->class_names(); }
  const char* unit() const override { return "img"; }
  std::string describe() const override;
  std::string warning() const override;
  std::string score_text(double score) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;
  void show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const override;
  int64_t staging_bytes() const override;

 private:
  /// Returns the section of the report with the numbers of images by class.
  io::ReportSection label_section(const Evaluation& last) const;

  models::ModelOptions model_;
  data::LoaderOptions loader_;
  data::PixelOptions pixels_;
  std::unique_ptr<data::Dataset> train_;
  std::unique_ptr<data::Dataset> test_;
  data::ImageRows rows_;  ///< rows of the training images
  std::optional<data::ClassBalance> balance_;
};

}  // namespace hearth::tasks
