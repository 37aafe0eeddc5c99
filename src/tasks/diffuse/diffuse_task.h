#pragma once

#include "data/captions/bucket_order.h"
#include "tasks/diffuse/denoiser_objective.h"
#include "tasks/diffuse/diffusion_data.h"
#include "tasks/task.h"

namespace hearth::tasks {

struct DiffuseTaskOptions {
  DenoiseFormat format;
  recipe::Objective objective = recipe::Objective::flow;
  recipe::Diffuse diffuse;
  data::LoaderOptions loader;
  std::shared_ptr<const DiffusionData> images;
  std::string config;  ///< text of the model's config.json
};

/// Returns the default sampler of evaluations and `hearth generate` for latents of this size: DDIM for models
/// that predict epsilon or v; Euler, with the timestep shift of training, for flow matching.
SamplerOptions sampler_for(const Noising& noising, const models::DenoiserConfig& model, int64_t steps,
                           Extent latents);

/// Training of diffusion models. Evaluations measure the loss of held-out images at fixed noise levels and
/// generate images. The last evaluation also measures class agreement: the fraction of generated images that
/// show the requested class (AgreementClassifier).
class DiffuseTask : public Task {
 public:
  /// Throws a UserError if the images do not fit the model.
  explicit DiffuseTask(DiffuseTaskOptions options);

  int64_t num_rows() const override { return order_.num_places(); }
  int64_t num_eval_rows() const override { return eval_rows_.num_rows(); }
  int64_t num_samples(const data::LoaderPosition&, int64_t count) const override { return count; }
  std::vector<int64_t> row_lengths() const override { return lengths_; }
  std::vector<int64_t> eval_sizes(int64_t batch) const override;
  void prepare(const Say& say) override { options_.images->prepare(evaluation_prompts(), say); }
  bool is_prepared() const override { return options_.images->is_prepared(evaluation_prompts()); }
  using Task::open;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                    const data::LoaderShare& share) const override;
  Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const override;
  const char* unit() const override { return "img"; }
  std::string describe() const override { return options_.images->describe(); }
  std::string warning() const override { return options_.images->warning(); }
  std::string score_text(double score) const override;
  std::string evaluation_text(const Evaluation& found) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;
  std::string last_line(const fs::path& log) const override;
  void save_companions(const fs::path& folder, DType) const override;
  /// Adds images that are spread evenly over the training data; ignores the position.
  void show_samples(const data::LoaderPosition&, int64_t count, io::ReportData& page) const override {
    options_.images->show_samples(count, page);
  }
  int64_t staging_bytes() const override;

 private:
  /// Returns the prompts that evaluations generate images for: diffuse.prompts, or at most 16 of the data.
  std::vector<std::string> evaluation_prompts() const;
  /// Returns the mean loss of the evaluation rows, held-out images at each of the fixed noise levels.
  double loss_at_fixed_levels(engine::Engine& engine) const;
  /// Returns a generator of latents of size latents_.
  LatentGenerator generator(engine::Engine& engine) const;
  void generate_images(engine::Engine& engine, LatentGenerator& generator, Evaluation& made) const;
  /// Generates an image for each condition. Image i starts from noise number first + i (draw_noise).
  std::vector<data::Image> images_of(engine::Engine& engine, LatentGenerator& generator,
                                     std::span<const Condition> requested, uint64_t first) const;
  /// Generates diffuse.judged images and returns their class agreement; nullopt if the number is 0 or there
  /// are no classes.
  std::optional<double> measure_agreement(engine::Engine& engine, LatentGenerator& generator) const;

  /// Returns the number of rows of an evaluation micro-batch; 1 if images have several sizes.
  int64_t eval_batch() const;

  DiffuseTaskOptions options_;
  Noising noising_;
  DenoiseRows rows_, eval_rows_;
  data::BucketOrder order_;       ///< training order: a micro-batch has images of one size
  std::vector<int64_t> lengths_;  ///< distinct row lengths of training and held-out images, longest first
  Extent latents_;  ///< size of generated images' latents: the most frequent size of the training data
};

}  // namespace hearth::tasks
