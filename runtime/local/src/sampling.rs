//! Choice of the next token from the numbers of a model.

use serde::{Deserialize, Serialize};

/// Settings of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Temperature; 0 always chooses the most probable token.
    pub temperature: f64,
    /// Number of the most probable tokens of which one is chosen; 0 means all.
    pub top_k: u32,
    /// Probability mass of the tokens of which one is chosen, above 0 and up to 1.
    pub top_p: f64,
    /// Minimum probability of a token, relative to that of the most probable one.
    pub min_p: f64,
    /// Seed: the same seed, settings and conversation give the same answer.
    pub seed: u64,
}

impl Default for Sampling {
    /// Settings that suit most models of a few thousand million parameters.
    fn default() -> Self {
        Self {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            seed: 0,
        }
    }
}

/// Chooser of tokens, with its random numbers.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Sampling,
    random: u64,
}

impl Sampler {
    /// Creates a chooser.
    pub fn new(settings: Sampling) -> Self {
        Self {
            random: settings.seed,
            settings,
        }
    }

    /// Chooses one of the tokens that are allowed, by their numbers; `None` if none is. A token is first chosen of all, because the
    /// one that a model wants is mostly allowed, and to look at each takes time.
    pub fn choose(&mut self, logits: &[f32], is_allowed: impl Fn(usize) -> bool) -> Option<usize> {
        match self.choose_of(logits, |_| true) {
            Some(token) if is_allowed(token) => Some(token),
            _ => self.choose_of(logits, is_allowed),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "53 random bits are exact")]
    fn choose_of(&mut self, logits: &[f32], is_allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let all = logits.iter().copied().enumerate();
        let mut tokens: Vec<(usize, f64)> = all
            .filter(|(token, logit)| logit.is_finite() && is_allowed(*token))
            .map(|(token, logit)| (token, f64::from(logit)))
            .collect();
        let by_rank = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let most = match self.settings.top_k {
            _ if self.settings.temperature <= 0.0 => 1,
            0 => tokens.len(),
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        if most < tokens.len() {
            tokens.select_nth_unstable_by(most, by_rank);
            tokens.truncate(most);
        }
        tokens.sort_unstable_by(by_rank);
        let best = tokens.first()?.1;
        if tokens.len() == 1 {
            return tokens.first().map(|(token, _)| *token);
        }
        for (_, logit) in &mut tokens {
            *logit = ((*logit - best) / self.settings.temperature).exp();
        }
        tokens.retain(|(_, weight)| *weight >= self.settings.min_p);
        let all: f64 = tokens.iter().map(|(_, weight)| weight).sum();
        let mut kept = 0.0;
        let mut count = 0;
        for (_, weight) in &tokens {
            kept += weight;
            count += 1;
            if kept >= all * self.settings.top_p {
                break;
            }
        }
        tokens.truncate(count);
        let mut at = (self.next() >> 11) as f64 / (1u64 << 53) as f64 * kept;
        for (token, weight) in &tokens {
            at -= weight;
            if at < 0.0 {
                return Some(*token);
            }
        }
        tokens.last().map(|(token, _)| *token)
    }

    /// Random number of SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [1.0, 3.0, f32::NAN, 2.9, -4.0];

    fn chosen(settings: Sampling, is_allowed: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut sampler = Sampler::new(settings);
        let choose = |_| sampler.choose(&LOGITS, &is_allowed).unwrap();
        (0..1_000).map(choose).collect()
    }

    #[test]
    fn temperature_zero_chooses_the_most_probable_allowed() {
        let settings = Sampling {
            temperature: 0.0,
            ..Sampling::default()
        };
        assert!(chosen(settings, |_| true).iter().all(|token| *token == 1));
        assert!(
            chosen(settings, |token| token == 4)
                .iter()
                .all(|token| *token == 4)
        );
        assert_eq!(Sampler::new(settings).choose(&LOGITS, |token| token == 2), None);
        assert_eq!(Sampler::new(settings).choose(&[], |_| true), None);
    }

    #[test]
    fn settings_leave_out_tokens_and_seeds_repeat_choices() {
        let all = Sampling {
            temperature: 2.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 7,
        };
        let has = |tokens: &[usize], token: usize| tokens.contains(&token);
        let free = chosen(all, |_| true);
        assert!(has(&free, 0) && has(&free, 1) && has(&free, 3) && has(&free, 4) && !has(&free, 2));
        assert_eq!(free, chosen(all, |_| true));
        assert_ne!(free, chosen(Sampling { seed: 8, ..all }, |_| true));
        for (settings, count) in [
            (Sampling { top_k: 2, ..all }, 2),
            (Sampling { top_p: 0.4, ..all }, 1),
            (Sampling { min_p: 0.9, ..all }, 2),
        ] {
            let mut tokens = chosen(settings, |_| true);
            tokens.sort_unstable();
            tokens.dedup();
            assert_eq!(tokens.len(), count, "{settings:?}");
        }
    }

    #[test]
    fn choices_follow_the_probabilities() {
        let settings = Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 1,
        };
        let ones = chosen(settings, |_| true)
            .into_iter()
            .filter(|token| *token == 1)
            .count();
        // e^3 of e + e^3 + e^2.9 + e^-4 is 0.489.
        assert!((430..=550).contains(&ones), "{ones}");
    }
}
