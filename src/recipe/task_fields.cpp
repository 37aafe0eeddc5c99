#include "recipe/task_fields.h"

#include "recipe/field_kinds.h"

namespace hearth::recipe {

void add_segment_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "segment", &Recipe::segment);
  key("loss", "Segmentation: cross_entropy, dice, focal, or a list of them, whose sum is the loss",
      &Segment::loss, OneOrMore());
  key("class_weights",
      "Segmentation: class weights in the loss. none; given: segment.weights; median_frequency: computed "
      "from the training masks",
      &Segment::class_weights);
  key("weights", "Segmentation: weight of each class in the loss, for class_weights=given",
      &Segment::weights);
}

void add_detect_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "detect", &Recipe::detect);
  key("mosaic", "Detection: probability that a training image is a mosaic of four", &Detect::mosaic,
      Fraction());
  key("mixup", "Detection: probability that a mosaic is mixed with another image", &Detect::mixup,
      Fraction());
  key("degrees", "Detection: max random rotation in degrees, in both directions", &Detect::degrees,
      RealRange{0, 180});
  key("translate", "Detection: max random shift, as a fraction of the image", &Detect::translate,
      RealRange{0, 1});
  key("shear", "Detection: max random shear in degrees, in both directions", &Detect::shear,
      RealRange{0, 45});
  key("scale", "Detection: range of the random scale factor", &Detect::scale);
  key("hsv", "Detection: random change of hue, saturation and brightness", &Detect::hsv);
  key("plain_epochs", "Detection: number of last epochs in which images are only flipped",
      &Detect::plain_epochs, IntegerRange{0});
  key("sizes",
      "Detection: sides of training images in pixels for multi-scale training, e.g. [288, 320, 352]; "
      "changes every ten updates; empty: data.image_size",
      &Detect::sizes);
  key("max_boxes", "Detection: max boxes of a training image; further ones are ignored", &Detect::max_boxes,
      IntegerRange{1, 10000});
  key("score", "Detection: min score of a prediction in evaluations", &Detect::score, RealRange{0, 1});
  key("nms", "Detection: IoU threshold of non-maximum suppression within a class", &Detect::nms, Fraction());
  key("max_detections", "Detection: max predictions per image", &Detect::max_detections,
      IntegerRange{1, 10000});
  key("shown_score", "Detection: min score of a prediction that is drawn", &Detect::shown_score,
      RealRange{0, 1});
}

void add_dpo_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "dpo", &Recipe::dpo);
  key("beta", "Strength of the penalty for diverging from the starting model", &Dpo::beta,
      RealRange{1e-6, 1e6});
  key("label_smoothing", "Assumed fraction of pairs whose chosen and rejected answers are swapped",
      &Dpo::label_smoothing, RealRange{0, 0.5});
}

void add_distill_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "distill", &Recipe::distill);
  key("from",
      "Knowledge distillation: file of hearth distill capture, sidecar of Surogate (.kd), or a teacher that "
      "runs during training: for images a run folder, for text a run folder, model folder or GGUF file; "
      "empty: none",
      &Distill::from);
  key("weight",
      "Loss: (1 - weight) x loss of the labels + weight x temperature^2 x divergence from the teacher",
      &Distill::weight, Fraction());
  key("temperature", "Probabilities of teacher and student are raised to the power 1 / temperature",
      &Distill::temperature, RealRange{0.01, 1000});
  key("loss",
      "Divergence of the student P from the teacher Q. forward: KL(Q, P); reverse: KL(P, Q); jsd: beta "
      "KL(Q, M) + (1 - beta) KL(P, M), M = (1 - beta) P + beta Q",
      &Distill::loss);
  key("beta", "jsd: weight of the teacher in the mixture", &Distill::beta, RealRange{0.001, 1});
  key("top_k",
      "Teacher that runs during training of a language model: number of its most likely tokens that are "
      "compared; all others count as one token",
      &Distill::top_k, IntegerRange{1, 1 << 16});
  key("quantize",
      "Storage of the linear layers of a language model's teacher that runs during training: nf4, int8 or "
      "fp8; empty: unquantized",
      &Distill::quantize, Named());
}

void add_diffuse_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "diffuse", &Recipe::diffuse);
  key("sampling",
      "flow: distribution of timesteps. uniform; sigmoid: sigmoid of a normal distribution; shift, "
      "flux_shift: sigmoid, then shifted towards noise by diffuse.shift or by the number of tokens; "
      "logit_normal; mode",
      &Diffuse::sampling);
  key("mean", "flow: mean of the normal distribution of logit_normal", &Diffuse::mean, RealRange{-10, 10});
  key("std", "flow: standard deviation of the normal distribution under the sigmoid", &Diffuse::std,
      RealRange{0, 10});
  key("shift", "flow: timestep shift of sampling=shift", &Diffuse::shift, RealRange{0.01, 100});
  key("mode_scale", "flow: scale of sampling=mode", &Diffuse::mode_scale, RealRange{-1, 1.75});
  key("weighting", "Loss weight by timestep: none, sigma_sqrt, cosmap, min_snr (for epsilon and v)",
      &Diffuse::weighting);
  key("min_snr", "gamma of weighting=min_snr", &Diffuse::min_snr, RealRange{0.01, 1000});
  key("dropout", "Fraction of training images without class or caption, for classifier-free guidance",
      &Diffuse::dropout, Fraction());
  key("trigger", "Word to prepend to captions that do not contain it", &Diffuse::trigger);
  key("prior",
      "Folder of images with captions for prior preservation, which the model must still be able to generate",
      &Diffuse::prior);
  key("prior_weight", "Loss weight of the images in diffuse.prior", &Diffuse::prior_weight,
      RealRange{0, 100});
  key("text_tokens", "Max tokens of a caption", &Diffuse::text_tokens, IntegerRange{1, 4096});
  key("val_images", "Number of held-out images for the loss at fixed noise", &Diffuse::val_images,
      IntegerRange{1, 100000});
  key("prompts",
      "Prompts of the images that evaluations generate, e.g. [a red house]; empty: classes or captions of "
      "the data",
      &Diffuse::prompts, OneOrMore());
  key("steps", "Sampling steps of generated images", &Diffuse::steps, IntegerRange{1, 1000});
  key("guidance", "Guidance scale of generated images", &Diffuse::guidance, RealRange{0, 100});
  key("judged",
      "Classes: number of images that the last evaluation generates and classifies, with a classifier "
      "trained on the same data, to report the fraction of requested classes",
      &Diffuse::judged, IntegerRange{0, 100000});
}
}  // namespace hearth::recipe
