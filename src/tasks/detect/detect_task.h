#pragma once

#include <optional>

#include "data/class_balance.h"
#include "tasks/detect/detect_rows.h"
#include "tasks/detect/nms.h"
#include "tasks/task.h"

namespace hearth::tasks {

struct DetectTaskOptions {
  DetectorOptions detector;
  data::BoxedImages train, held_out;
  data::LoaderOptions loader;
  DetectRowOptions rows;  ///< options of training rows
  NmsOptions nms;
  double shown_score = 0.25;  ///< min score of drawn predictions
  /// True to balance classes: each image counts for its rarest class, and each class is drawn equally often.
  bool balance = false;
};

/// Names and COCO category ids of the classes, as stored in the file kDetectionClasses of a run.
struct DetectionClasses {
  std::vector<std::string> names;
  std::vector<int64_t> category_ids;
};
/// Reads kDetectionClasses. Throws a UserError if the file is malformed.
DetectionClasses read_detection_classes(const fs::path& path);

/// Returns the detections of row `row` of the engine's last evaluation, after non-maximum suppression, in
/// pixels of the stored image. `image`: size of the stored image; `input`: size of the model's input.
std::vector<Detection> detections_of(const Detector& detector, const engine::Engine& engine, int64_t row,
                                     Extent image, Extent input, const NmsOptions& nms);
/// Draws the detections with a score of at least `min_score` on an image, the most confident one on top.
data::Image draw_detections(data::Image image, std::span<const Detection> detections,
                            const std::vector<std::string>& names, double min_score);

/// Object detection. The constructor throws a UserError if the data does not fit the model.
class DetectTask : public Task {
 public:
  explicit DetectTask(DetectTaskOptions options);

  int64_t num_rows() const override { return data::epoch_rows(train_rows_.num_rows(), options_.loader); }
  int64_t num_data_rows() const override { return train_rows_.num_rows(); }
  int64_t num_eval_rows() const override { return test_rows_.num_rows(); }
  int64_t num_samples(const data::LoaderPosition&, int64_t count) const override { return count; }
  std::vector<int64_t> row_lengths() const override;
  using Task::open;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                    const data::LoaderShare& share) const override;
  std::unique_ptr<BatchStream> open_held_out() const override;
  Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const override;
  std::vector<std::string> class_names() const override { return options_.train.class_names; }
  const char* unit() const override { return "img"; }
  std::string describe() const override;
  std::string warning() const override;
  std::string score_text(double score) const override;
  std::string evaluation_text(const Evaluation& found) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;
  std::string last_line(const fs::path& log) const override;
  void write_tables(const fs::path& folder, int64_t steps_per_epoch) const override;
  void save_companions(const fs::path& folder, DType) const override;
  void show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const override;
  int64_t staging_bytes() const override;

 private:
  /// Returns a strip for the report: held-out image `index` with its ground-truth boxes, and the same image
  /// with the detections.
  io::ImageStrip strip(int64_t index, std::span<const Detection> found) const;

  DetectTaskOptions options_;
  std::unique_ptr<Detector> detector_;
  DetectRows train_rows_, test_rows_;
  std::optional<data::ClassBalance> balance_;
  data::ImageReader reader_;  ///< decodes held-out images for the report
};

}  // namespace hearth::tasks
